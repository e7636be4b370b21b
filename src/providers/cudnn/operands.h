// Which of the caller's tensors cuDNN reads and writes where they are. Pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/provider.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// One tensor of an execution.
struct Operand {
  TensorView view;    // the caller's; without rows where the caller has none
  bool keys = false;  // its rows are those of keys
  int64_t heads = 0;  // 0: the graph has no such tensor
  int64_t dim = 0;
  bool in_place = false;  // cuDNN is given the view; else packed rows in scratch memory
  Strides strides;        // of what it is given
};

/// By Slot.
struct Operands {
  std::array<Operand, kTensors> tensors;
  Operand& operator[](Slot slot) { return tensors[static_cast<size_t>(slot)]; }
  const Operand& operator[](Slot slot) const { return tensors[static_cast<size_t>(slot)]; }
};

Operands operands_of(const TileProblem& problem, const Group& group, const ForwardTiles& tiles);
Operands operands_of(const TileProblem& problem, const Group& group, const BackwardTiles& tiles);

/// The graph of a group with these tensors.
GraphKey graph_key(const TileProblem& problem, const Group& group, const Operands& operands,
                   int ordinal);

}  // namespace longspan::cudnn
