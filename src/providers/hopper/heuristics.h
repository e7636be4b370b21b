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

/// The kernels that are built, each for whole and merged results of bf16 and f16.
enum class Shape { kD64Keys96, kD64Keys160, kD96, kD128, kD192, kD256, kD512 };
inline constexpr int kShapes = 7;

/// What a kernel's block of threads computes at a time. Narrower heads are padded to `dim`.
struct Extents {
  int64_t dim = 0;
  int64_t rows = 0;  // queries
  int64_t keys = 0;
};

Extents extents(Shape shape);

/// Most columns of the kernels that pull keys and values: wider ones leave no warp for it.
inline constexpr int64_t kMostPullingColumns = 256;

/// Columns of the kernels that serve these dims.
int64_t kernel_dim(int64_t dim_qk, int64_t dim_v);

Shape choose_shape(const TileProblem& problem, std::span<const PlacedTile> tiles,
                   int multiprocessors);

/// The kernel that pulls keys and values, of up to kMostPullingColumns.
Shape pulling_shape(const TileProblem& problem);

/// Query heads whose blocks are computed together: those of one key head where blocks cost about
/// the same, else of as many as keep their keys and values in the L2 cache.
int64_t section_heads(const TileProblem& problem, const Wave& wave);

}  // namespace longspan::hopper
