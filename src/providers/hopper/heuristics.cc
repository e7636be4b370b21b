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
    case Shape::kD64Keys96: return {.dim = 64, .rows = 192, .keys = 96};
    case Shape::kD64Keys160: return {.dim = 64, .rows = 128, .keys = 160};
    case Shape::kD96: return {.dim = 96, .rows = 128, .keys = 128};
    case Shape::kD128: return {.dim = 128, .rows = 128, .keys = 128};
    case Shape::kD192: return {.dim = 192, .rows = 128, .keys = 112};
    case Shape::kD256: return {.dim = 256, .rows = 128, .keys = 80};
    case Shape::kD512: return {.dim = 512, .rows = 64, .keys = 128};
  }
  return {};
}

int64_t kernel_dim(int64_t dim_qk, int64_t dim_v) {
  const int64_t wider = std::max(dim_qk, dim_v);
  for (const int64_t dim : {64, 96, 128, 192, 256}) {
    if (wider <= dim) return dim;
  }
  return kMostColumns;
}

Shape choose_shape(const TileProblem& p, std::span<const PlacedTile> tiles, int multiprocessors) {
  // Larger blocks of queries win where there are enough of them, and where masks make their costs
  // differ.
  constexpr int64_t kEnough = 6;
  switch (kernel_dim(p.dim_qk, p.dim_v)) {
    case 64: {
      const int64_t blocks = blocks_of(extents(Shape::kD64Keys96).rows, tiles) * p.heads_q;
      const bool few = blocks < kEnough * multiprocessors;
      return few && all_full(tiles) ? Shape::kD64Keys160 : Shape::kD64Keys96;
    }
    case 96: return Shape::kD96;
    case 128: return Shape::kD128;
    case 192: return Shape::kD192;
    case 256: return Shape::kD256;
    default: return Shape::kD512;
  }
}

Shape pulling_shape(const TileProblem& p) {
  switch (kernel_dim(p.dim_qk, p.dim_v)) {
    case 64: return Shape::kD64Keys160;  // three consumer warpgroups leave too few registers
    case 96: return Shape::kD96;
    case 128: return Shape::kD128;
    case 192: return Shape::kD192;
    default: return Shape::kD256;
  }
}

int64_t section_heads(const TileProblem& p, const Wave& wave) {
  constexpr int64_t kSectionBytes = int64_t{32} << 20;
  if (wave.even) return std::min(p.group, p.heads_q);
  const int64_t bytes = std::max<int64_t>(wave.keys * (p.dim_qk + p.dim_v) * 2, 1);
  const int64_t fit = std::max<int64_t>(kSectionBytes / bytes, 1);
  return fit >= p.heads_q ? p.heads_q : std::min(fit * p.group, p.heads_q);
}

}  // namespace longspan::hopper
