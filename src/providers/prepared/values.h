// What one execution of an engine is given, by the names of lists.txt and of manifests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "longspan/tensor.h"

namespace longspan::prepared {

/// Tensors of a call, then those in scratch memory.
enum class Name : uint8_t {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kCumulativeQ,
  kCumulativeK,  // rows before each sequence, and all rows
  kLengthsQ,
  kLengthsK,  // of each batch entry
  kDeltaRows,
  kLseLog2,
  kDqSum,
  kDkSum,
  kDvSum,
  kDqTurns,
  kDkTurns,
  kDvTurns,
};
inline constexpr size_t kNames = 21;

std::string_view name(Name name);  // "q", "cumulative_q", "dq_sum", ...
std::optional<Name> parse_name(std::string_view text);

enum class Element : uint8_t { kF16, kBF16, kF32, kI32 };

std::string_view name(Element element);  // "float16", "bfloat16", "float32", "int32"

/// A tensor; without data: not given. The last stride is 1 where an engine is given tensors.
struct Operand {
  void* data = nullptr;
  Element element = Element::kF32;
  int32_t rank = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> strides{};
};

struct Values {
  std::array<Operand, kNames> operands;
  double scale = 1;
  int64_t left = 0, right = 0;     // keys seen on both sides of the diagonal
  std::array<int64_t, 6> sizes{};  // batch, query heads, key heads, queries, keys, 0
  int64_t tokens_q = 0;            // queries that the build declares
  Stream stream;
  int ordinal = 0;  // of the CUDA device

  Operand& operator[](Name name) { return operands[static_cast<size_t>(name)]; }
  const Operand& operator[](Name name) const { return operands[static_cast<size_t>(name)]; }
};

}  // namespace longspan::prepared
