// Q, K, V and dout of a call as tensor maps.
#pragma once

#include <cstdint>

#include "longspan/provider.h"
#include "providers/hopper/backward/chunks.h"
#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scratch.h"

namespace longspan::hopper {

/// Views of the operands, and which row and head of the caller's views their first ones are.
struct OperandViews {
  TensorView q, k, v, dout;
  int64_t first_query = 0, first_key = 0;
  int64_t first_head = 0, first_key_head = 0;
};

/// Whether TMA can read all of the caller's views.
bool in_place(const BackwardTiles& tiles);

/// The caller's views.
OperandViews views_of(const BackwardTiles& tiles);

/// Copies rows `reads` of a key head and of its query heads `heads` to `scratch`, which has room
/// for them (BackwardScratch::rows).
Result<OperandViews> packed_operands(const BackwardTiles& tiles, const ReadRows& reads,
                                     int64_t key_head, Range heads, std::byte* scratch);

/// `key_rows`: rows of K and V that the kernel of scores takes at a time.
Status map_operands(const OperandViews& views, const GradientColumns& columns, int key_rows,
                    ScoreParameters& scores, GradientParameters& gradients);

}  // namespace longspan::hopper
