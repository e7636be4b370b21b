#include "guard/predicate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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
                            .least = promise == Promise::kUniformLengths ? capacity : 0,
                            .most = capacity});
    }
  }
}

}  // namespace

std::vector<Predicate> make_predicates(const Problem& problem, std::span<const Promise> added) {
  std::vector<Predicate> predicates;
  if (!problem.device_lengths) return predicates;
  const bool uniform =
      std::find(added.begin(), added.end(), Promise::kUniformLengths) != added.end();
  add_lengths(problem, uniform ? Promise::kUniformLengths : Promise::kDeviceLengths, predicates);
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
