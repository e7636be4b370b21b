// Which kernel computes a call, and in which order. Pure functions of shapes and tiles.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "longspan/provider.h"
#include "providers/hopper/work.h"

namespace longspan::hopper {

/// Most columns of Q and K, and of V.
inline constexpr int64_t kMostColumns = 512;

/// Shapes of the kernels that are built, for whole and merged results of bf16 and f16, and, but for
/// kD64Keys160, with score terms too.
enum class Shape {
  kD64Keys96,
  kD64Keys160,
  kD96,
  kD128,
  kD192V128,
  kD192,
  kD256,
  kD320,
  kD384,
  kD448,
  kD512,
};
inline constexpr int kShapes = 11;

/// What a kernel's block of threads computes at a time. Narrower heads are padded to the dims.
struct Extents {
  int64_t dim = 0, dim_v = 0;
  int64_t rows = 0;  // queries
  int64_t keys = 0;  // of a kernel without score terms
};

Extents extents(Shape shape);

/// Whether a call needs a kernel that knows score terms and largest logits.
bool has_terms(const Features& features);

/// The narrowest shape that these dims fit; of 64 columns the one for many blocks.
Shape narrowest_shape(int64_t dim_qk, int64_t dim_v);

/// Most columns of the kernels that pull keys and values: wider ones leave no warp for it.
inline constexpr int64_t kMostPullingColumns = 256;

Shape choose_shape(const TileProblem& problem, std::span<const PlacedTile> tiles,
                   int multiprocessors);

/// The kernel that pulls keys and values, of up to kMostPullingColumns.
Shape pulling_shape(const TileProblem& problem);

/// Whether query heads may share a block in kernels of this shape, which then exist for whole
/// results without score terms. Where blocks end where steps do, they would save nothing.
bool may_share(Shape shape);

/// Query heads of one key head whose queries share a block's rows, a power of two: the fewer
/// queries of each, the fewer keys at the edges of masks. One where that saves too little.
int block_heads(const TileProblem& problem, std::span<const PlacedTile> tiles, Shape shape);

/// Query heads whose blocks are computed together: those of one key head where blocks cost about
/// the same, else of as many as keep their keys and values in the L2 cache.
int64_t section_heads(const TileProblem& problem, const Wave& wave);

}  // namespace longspan::hopper
