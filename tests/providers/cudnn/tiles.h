// Problems and tiles for the tests of groups.
#pragma once

#include <random>
#include <vector>

#include "longspan/provider.h"

namespace longspan::cudnn {

inline TileProblem problem(Direction direction, int64_t rows_q, int64_t rows_k, int64_t dim = 128) {
  return {.direction = direction,
          .dtype = DType::kBF16,
          .heads_q = 4,
          .heads_kv = 2,
          .group = 2,
          .dim_qk = dim,
          .dim_v = dim,
          .capacity_q = rows_q,
          .capacity_k = rows_k};
}

inline PlacedTile placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band) {
  // Strides of the tokens do not matter: rows are consecutive.
  return {.tile = {.q = {10, 10 + 3 * nq, 3}, .k = {0, 2 * nk, 2}, .band = band},
          .q_row = q_row,
          .k_row = k_row};
}

/// Self-attention of sequences that lie one behind the other.
inline std::vector<PlacedTile> pack(const std::vector<int64_t>& lengths,
                                    const std::vector<int64_t>& keys, bool causal,
                                    int64_t window = -1) {
  std::vector<PlacedTile> tiles;
  int64_t q = 0;
  int64_t k = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t shift = keys[i] - lengths[i];
    Band band;
    if (causal) band.hi = shift;
    if (window >= 0) band.lo = shift - window;
    tiles.push_back(placed(q, lengths[i], k, keys[i], band));
    q += lengths[i];
    k += keys[i];
  }
  return tiles;
}

inline int64_t pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

}  // namespace longspan::cudnn
