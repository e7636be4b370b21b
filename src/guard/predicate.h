// What guards check, as data: the same on the host and on devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "longspan/problem.h"
#include "longspan/promise.h"

namespace longspan::guard {

/// Arrays that come with a call.
enum class Array : int32_t { kLengthsQ, kLengthsK };
inline constexpr size_t kArrays = 2;
using Arrays = std::array<const int32_t*, kArrays>;

inline Arrays arrays_of(const ActualLengths& lengths) {
  return {lengths.q.data(), lengths.k.data()};
}

/// Entry `index` of an array lies in [least, most].
struct Predicate {
  Promise promise = Promise::kDeviceLengths;
  Array array = Array::kLengthsQ;
  int32_t index = 0;
  int32_t least = 0;
  int32_t most = 0;
};

/// A predicate that did not hold.
struct Violation {
  Predicate predicate;
  int32_t value = 0;
};

/// Those of the promises that a problem makes and its caller adds; none where no call brings
/// anything that could break them. Added ones all claim the same of lengths: the first is named.
std::vector<Predicate> make_predicates(const Problem& problem, std::span<const Promise> added);

/// What promises claim about a layout that is known ahead. invalid_argument names the promise, the
/// sequence and what differs.
Status check_layout(const Problem& problem, std::span<const Promise> added);

/// guard_failed naming promise, array, sequence, value and limits.
Error error_of(const Violation& violation);

}  // namespace longspan::guard
