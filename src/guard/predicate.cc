#include "guard/predicate.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace longspan::guard {
namespace {

std::string_view name(Array array) { return array == Array::kLengthsQ ? "lengths_q" : "lengths_k"; }

void add_lengths(const Problem& problem, Promise promise, std::vector<Predicate>& predicates) {
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  for (const Array array : {Array::kLengthsQ, Array::kLengthsK}) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto capacity = static_cast<int32_t>(array == Array::kLengthsQ ? sequences[i].q_length
                                                                           : sequences[i].k_length);
      predicates.push_back({.promise = promise,
                            .array = array,
                            .index = static_cast<int32_t>(i),
                            .least = promise == Promise::kDeviceLengths ? 0 : capacity,
                            .most = capacity});
    }
  }
}

Error broken(Promise promise, const std::string& what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("promise {}: {}; drop the promise, or change the problem",
                      longspan::name(promise), what),
          "guard"};
}

Status check_compact(const std::vector<Sequence>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    for (const auto& [length, extent] :
         {std::pair(s.q_length, s.q_extent), std::pair(s.k_length, s.k_extent)}) {
      if (length == extent) continue;
      return broken(Promise::kCompactLengths,
                    fmt::format("sequence {} has {} tokens in an extent of {}", i, length, extent));
    }
    if (s.q_length > 0 && s.k_length == 0) {
      return broken(Promise::kCompactLengths,
                    fmt::format("sequence {} has {} queries and no key", i, s.q_length));
    }
  }
  return {};
}

Status check_pitched(const Problem& problem) {
  if (problem.mask != MaskKind::kCausal) {
    return broken(Promise::kPitchedAllGather,
                  fmt::format("mask={}, but causal is needed", longspan::name(problem.mask)));
  }
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    const Sequence& first = sequences.front();
    const auto shape = [](const Sequence& q) {
      return std::tuple(q.q_length, q.k_length, q.q_extent, q.k_extent);
    };
    if (shape(s) == shape(first)) continue;
    return broken(
        Promise::kPitchedAllGather,
        fmt::format("sequence {} has {} queries in an extent of {} and {} keys in {}, the first "
                    "{} in {} and {} in {}",
                    i, s.q_length, s.q_extent, s.k_length, s.k_extent, first.q_length,
                    first.q_extent, first.k_length, first.k_extent));
  }
  return {};
}

}  // namespace

Status check_layout(const Problem& problem, std::span<const Promise> added) {
  for (const Promise promise : added) {
    if (promise == Promise::kCompactLengths) {
      LONGSPAN_CHECK_OK(check_compact(problem.lengths.sequences));
    }
    if (promise == Promise::kPitchedAllGather) LONGSPAN_CHECK_OK(check_pitched(problem));
  }
  return {};
}

std::vector<Predicate> make_predicates(const Problem& problem, std::span<const Promise> added) {
  std::vector<Predicate> predicates;
  if (!problem.device_lengths) return predicates;
  add_lengths(problem, added.empty() ? Promise::kDeviceLengths : added.front(), predicates);
  return predicates;
}

Error error_of(const Violation& violation) {
  const Predicate& p = violation.predicate;
  const std::string limit = p.least == p.most ? fmt::format("must be {}", p.most)
                                              : fmt::format("must be {} to {}", p.least, p.most);
  return {
      ErrorCode::kGuardFailed,
      fmt::format("promise {}: {} of sequence {} is {}; it {}. The outputs of that call are NaN",
                  longspan::name(p.promise), name(p.array), p.index, violation.value, limit),
      "guard"};
}

}  // namespace longspan::guard
