#include "providers/prepared/scratch.h"

#include <algorithm>

#include "providers/rows/entries.h"
#include "providers/rows/places.h"

namespace longspan::prepared {
namespace {

int64_t heads_of(const Buffer& b, const TileProblem& p) {
  return b.keys ? rows::key_heads(p) : p.heads_q;
}

/// Bytes of a buffer in the largest launch.
int64_t most_bytes(const Buffer& b, const Manifest& m, const TileProblem& p) {
  const int64_t tile = b.keys ? m.tile_k : m.tile_q;
  const int64_t rows =
      most_padded_rows(b.keys ? p.capacity_k : p.capacity_q, tile, m.serves.packed);
  return heads_of(b, p) * (b.turns ? rows / tile : rows) * b.width * 4;
}

/// Rows that statistics have room for: builds of fixed rows write all of them.
int64_t statistics_rows(const TileProblem& p, const Builds& builds) {
  int64_t rows = p.capacity_q;
  for (const auto& kernel : builds.kernels()) {
    rows = std::max(rows, kernel->manifest().serves.tokens_q);
  }
  return rows;
}

}  // namespace

Scratch scratch_of(const TileProblem& p, const Builds& builds) {
  const int64_t rows_q = p.capacity_q * p.heads_q;
  const int64_t rows_k = p.capacity_k * rows::key_heads(p);
  rows::Places places;
  Scratch s;
  const auto take = [&](Name name, int64_t bytes) {
    s.places[static_cast<size_t>(name)] = places.take(bytes);
  };
  take(Name::kQ, rows_q * p.dim_qk * 2);
  take(Name::kK, rows_k * p.dim_qk * 2);
  take(Name::kV, rows_k * p.dim_v * 2);
  take(Name::kO, rows_q * p.dim_v * 2);
  take(Name::kLse, statistics_rows(p, builds) * p.heads_q * 4);
  if (p.direction == Direction::kBackward) {
    take(Name::kDout, rows_q * p.dim_v * 2);
    take(Name::kDq, rows_q * p.dim_qk * 2);
    take(Name::kDk, rows_k * p.dim_qk * 2);
    take(Name::kDv, rows_k * p.dim_v * 2);
  }
  size_t most = 0;
  for (const auto& kernel : builds.kernels()) {
    const Manifest& m = kernel->manifest();
    rows::Places buffers;
    for (const Buffer& b : m.buffers) buffers.take(most_bytes(b, m, p));
    most = std::max(most, buffers.end());
  }
  s.buffers = places.take(static_cast<int64_t>(most));
  s.end = places.end();
  return s;
}

Operand buffer_operand(const Buffer& b, const Manifest& m, const TileProblem& p,
                       const Launch& launch) {
  const int64_t tile = b.keys ? m.tile_k : m.tile_q;
  const int64_t rows = b.keys ? launch.rows_k() : launch.rows_q();
  const auto entries = static_cast<int64_t>(launch.entries.size());
  const int64_t padded = padded_rows(rows, entries, tile, launch.packed) / launch.batch();
  const int64_t heads = heads_of(b, p);
  Operand o{.element = b.element};
  if (b.turns) {
    const int64_t turns = padded / tile;
    o.rank = 4;
    o.shape = {launch.batch(), heads, turns, b.width};
    o.strides = {heads * turns * b.width, turns * b.width, b.width, 1};
    return o;
  }
  const int64_t row = padded * b.width;
  if (launch.packed) {
    o.rank = 2;
    o.shape = {heads, row};
    o.strides = {row, 1};
  } else {
    o.rank = 3;
    o.shape = {launch.batch(), heads, row};
    o.strides = {heads * row, row, 1};
  }
  return o;
}

size_t bytes_of(const Operand& o) {
  int64_t elements = 1;
  for (int32_t i = 0; i < o.rank; ++i) elements *= o.shape[static_cast<size_t>(i)];
  return static_cast<size_t>(elements * 4);
}

}  // namespace longspan::prepared
