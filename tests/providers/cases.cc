#include <cmath>

#include "providers/support.h"

namespace longspan::testing {

int64_t pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

namespace {

Band random_band(std::mt19937_64& random, int64_t nq, int64_t nk) {
  const int64_t a = pick(random, -nq, nk);
  const int64_t b = pick(random, -nq, nk);
  switch (pick(random, 0, 7)) {
    case 0: return {};
    case 1: return {-kUnbounded, 0};
    case 2: return {-kUnbounded, nk - nq};
    case 3: return {-kUnbounded, a};
    case 4: return {a, kUnbounded};
    case 5: return {a, a};
    case 6: return {std::max(a, b), std::min(a, b)};  // often empty
    default: return {std::min(a, b), std::max(a, b)};
  }
}

/// A range of at most `limit` of `rows` rows, inside one batch entry or across several.
Range random_rows(std::mt19937_64& random, int64_t rows, int64_t limit) {
  const int64_t count = pick(random, 0, 3) == 0 ? std::min(rows, pick(random, 0, 17))
                                                : pick(random, 0, std::min(rows, limit));
  const int64_t first = pick(random, 0, rows - count);
  return {first, first + count};
}

}  // namespace

Case random_case(std::mt19937_64& random) {
  constexpr int64_t kDims[] = {1, 3, 8, 17, 32, 64, 80, 96, 128, 192, 256, 512, 576};
  Case c;
  TileProblem& p = c.problem;
  p.dtype = static_cast<DType>(pick(random, 0, 3));
  p.dim_qk = kDims[pick(random, 0, 12)];
  p.dim_v = pick(random, 0, 1) == 0 ? p.dim_qk : kDims[pick(random, 0, 12)];
  p.group = pick(random, 1, 4);
  p.group_offset = pick(random, 0, p.group - 1);
  p.heads_q = pick(random, 1, 5);
  p.heads_kv = (p.heads_q - 1 + p.group_offset) / p.group + 1;
  const int64_t limit = std::max(p.dim_qk, p.dim_v) > 200 ? 150 : 300;
  c.batch = pick(random, 1, 2);
  p.capacity_q = c.batch * pick(random, 1, limit);
  p.capacity_k = c.batch * pick(random, 1, limit);
  c.scale = pick(random, 0, 9) == 0 ? -0.3 : 1 / std::sqrt(static_cast<double>(p.dim_qk));
  c.memory = static_cast<Memory>(pick(random, 0, 1));
  c.gap = pick(random, 0, 1) * pick(random, 0, 5);
  const int64_t count = pick(random, 1, 6);
  for (int64_t i = 0; i < count; ++i) {
    const Range q = random_rows(random, p.capacity_q, limit);
    const Range k = random_rows(random, p.capacity_k, limit);
    const int64_t nq = q.last - q.first;
    const int64_t nk = k.last - k.first;
    c.tiles.push_back(make_placed(q.first, nq, k.first, nk, random_band(random, nq, nk)));
  }
  return c;
}

Case small_case(std::mt19937_64& random) {
  Case c;
  do {
    c = random_case(random);
  } while (c.problem.dim_qk > 17 || c.problem.dim_v > 17 || c.problem.capacity_q > 60 ||
           c.problem.capacity_k > 60);
  return c;
}

Case one_tile(int64_t nq, int64_t nk, Band band, DType dtype) {
  Case c;
  c.problem = {.dtype = dtype,
               .heads_q = 2,
               .heads_kv = 1,
               .group = 2,
               .dim_qk = 20,
               .dim_v = 12,
               .capacity_q = nq,
               .capacity_k = nk};
  c.scale = 1 / std::sqrt(20.0);
  c.tiles = {make_placed(0, nq, 0, nk, band)};
  return c;
}

}  // namespace longspan::testing
