// What an entry says of its own parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/status.h"

namespace longspan::prepared {

/// One parameter: "mQ: Tensor([n0, n1], bfloat16)" has kind "tensor", rank 2 and dtype "bfloat16".
/// Kinds: tensor, none, pointer, stream, float32, int32, int64, and of tuples "int64x3" or "nones".
struct Slot {
  std::string name;
  std::string kind;
  std::string dtype;  // of tensors
  int64_t rank = 0;   // of tensors
  int64_t items = 0;  // of tuples
};

/// Slots of the text between the brackets, in order. unsupported names what is not understood.
Result<std::vector<Slot>> parse_signature(std::string_view text);

}  // namespace longspan::prepared
