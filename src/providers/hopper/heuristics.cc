#include "providers/hopper/heuristics.h"

#include <algorithm>

namespace longspan::hopper {
namespace {

int64_t blocks_of(int64_t rows, std::span<const PlacedTile> tiles) {
  int64_t blocks = 0;
  for (const PlacedTile& t : tiles) blocks += (t.tile.q.size() + rows - 1) / rows;
  return blocks;
}

bool all_full(std::span<const PlacedTile> tiles) {
  return std::all_of(tiles.begin(), tiles.end(), [](const PlacedTile& t) { return full(t.tile); });
}

}  // namespace

Extents extents(Shape shape) {
  switch (shape) {
    case Shape::kD64Keys96: return {.dim = 64, .dim_v = 64, .rows = 192, .keys = 96};
    case Shape::kD64Keys160: return {.dim = 64, .dim_v = 64, .rows = 128, .keys = 160};
    case Shape::kD96: return {.dim = 96, .dim_v = 96, .rows = 128, .keys = 128};
    case Shape::kD128: return {.dim = 128, .dim_v = 128, .rows = 128, .keys = 128};
    case Shape::kD192V128: return {.dim = 192, .dim_v = 128, .rows = 128, .keys = 128};
    case Shape::kD192: return {.dim = 192, .dim_v = 192, .rows = 128, .keys = 112};
    case Shape::kD256: return {.dim = 256, .dim_v = 256, .rows = 128, .keys = 80};
    case Shape::kD320: return {.dim = 320, .dim_v = 320, .rows = 64, .keys = 128};
    case Shape::kD384: return {.dim = 384, .dim_v = 384, .rows = 64, .keys = 128};
    case Shape::kD448: return {.dim = 448, .dim_v = 448, .rows = 64, .keys = 128};
    case Shape::kD512: return {.dim = 512, .dim_v = 512, .rows = 64, .keys = 128};
  }
  return {};
}

bool has_terms(const Features& f) { return f.softcap || f.alibi || f.dropout || f.max_logit; }

Shape narrowest_shape(int64_t dim_qk, int64_t dim_v) {
  constexpr Shape kNarrowestFirst[] = {
      Shape::kD64Keys96, Shape::kD96,  Shape::kD128, Shape::kD192V128, Shape::kD192,
      Shape::kD256,      Shape::kD320, Shape::kD384, Shape::kD448,
  };
  for (const Shape shape : kNarrowestFirst) {
    const Extents most = extents(shape);
    if (dim_qk <= most.dim && dim_v <= most.dim_v) return shape;
  }
  return Shape::kD512;
}

Shape choose_shape(const TileProblem& p, std::span<const PlacedTile> tiles, int multiprocessors) {
  const Shape shape = narrowest_shape(p.dim_qk, p.dim_v);
  if (shape != Shape::kD64Keys96 || has_terms(p.features)) return shape;
  // Larger blocks of queries win where there are enough of them, and where masks make their costs
  // differ.
  constexpr int64_t kEnough = 6;
  const int64_t blocks = blocks_of(extents(shape).rows, tiles) * p.heads_q;
  const bool few = blocks < kEnough * multiprocessors;
  return few && all_full(tiles) ? Shape::kD64Keys160 : shape;
}

Shape pulling_shape(const TileProblem& p) {
  const Shape shape = narrowest_shape(p.dim_qk, p.dim_v);
  // Three consumer warpgroups leave too few registers.
  return shape == Shape::kD64Keys96 ? Shape::kD64Keys160 : shape;
}

bool may_share(Shape shape) {
  return shape == Shape::kD64Keys96 || shape == Shape::kD192 || shape == Shape::kD256;
}

int block_heads(const TileProblem& p, std::span<const PlacedTile> tiles, Shape shape) {
  constexpr int kMostHeads = 4;  // a warp's rows are those of one head
  // Where sharing saves nothing it costs 2 % at 128 columns.
  constexpr double kLeastSaved = 0.01;
  if (!may_share(shape) || !p.features.whole || has_terms(p.features)) return 1;
  int heads = 1;
  while (heads < kMostHeads && (p.heads_q | p.group | p.group_offset) % (2 * heads) == 0) {
    heads *= 2;
  }
  if (heads == 1) return 1;
  const auto steps = [&](int64_t rows) {
    return static_cast<double>(key_steps(tiles, rows, extents(shape).keys));
  };
  const int64_t rows = extents(shape).rows;
  return steps(rows / heads) / heads < (1 - kLeastSaved) * steps(rows) ? heads : 1;
}

int64_t section_heads(const TileProblem& p, const Wave& wave) {
  constexpr int64_t kSectionBytes = int64_t{32} << 20;
  if (wave.even) return std::min(p.group, p.heads_q);
  const int64_t bytes = std::max<int64_t>(wave.keys * (p.dim_qk + p.dim_v) * 2, 1);
  const int64_t fit = std::max<int64_t>(kSectionBytes / bytes, 1);
  return fit >= p.heads_q ? p.heads_q : std::min(fit * p.group, p.heads_q);
}

}  // namespace longspan::hopper
