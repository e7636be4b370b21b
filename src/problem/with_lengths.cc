#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>

#include "longspan/problem.h"

namespace longspan {
namespace {

Status replace(std::vector<Sequence>& sequences, int64_t Sequence::*length,
               std::span<const int32_t> actual, std::string_view side) {
  const auto invalid = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), "problem"};
  };
  if (actual.empty()) return {};
  if (actual.size() != sequences.size()) {
    return invalid(fmt::format("{} actual lengths of {} for {} sequences; one each is needed",
                               actual.size(), side, sequences.size()));
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    int64_t& capacity = sequences[i].*length;
    if (actual[i] < 0 || actual[i] > capacity) {
      return invalid(fmt::format("sequence {} has {} tokens of {}; must be 0 to its capacity {}", i,
                                 actual[i], side, capacity));
    }
    capacity = actual[i];
  }
  return {};
}

}  // namespace

Result<Problem> with_lengths(Problem problem, const ActualLengths& lengths) {
  std::vector<Sequence>& sequences = problem.lengths.sequences;
  LONGSPAN_CHECK_OK(replace(sequences, &Sequence::q_length, lengths.q, "q"));
  LONGSPAN_CHECK_OK(replace(sequences, &Sequence::k_length, lengths.k, "k"));
  problem.device_lengths = false;
  return validated(std::move(problem));
}

}  // namespace longspan
