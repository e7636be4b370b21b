// Ranks that are processes agree to start, or none does.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "commands.h"

namespace longspan::tool {
namespace {

/// What each rank tells the others. Seed and repeats are no part of the engine's agreement.
struct Word {
  const char* flag;
  uint64_t value;
};

constexpr size_t kWords = 4;

std::array<Word, kWords> words_of(const Arguments& arguments, int exit_code) {
  return {{{"", static_cast<uint64_t>(exit_code)},
           {"--seed", arguments.seed.value_or(0)},
           {"--seed", arguments.seed ? 1U : 0U},
           {"--repeat", static_cast<uint64_t>(arguments.repeat)}}};
}

Outcome cannot_start(const Arguments& arguments, const Session& session, std::string message) {
  Outcome outcome = failed({ErrorCode::kInvalidArgument, std::move(message), "run"},
                           arguments.problem, session.mpi->size());
  if (!session.reports()) outcome.error.clear();
  return outcome;
}

/// None when all can start and were asked for the same.
std::optional<Outcome> verdict(const Arguments& arguments, const Session& session,
                               const std::vector<uint64_t>& all) {
  const std::array<Word, kWords> mine = words_of(arguments, kPass);
  for (size_t rank = 0; rank * kWords < all.size(); ++rank) {
    const uint64_t code = all[rank * kWords];
    if (code == kPass) continue;
    Outcome outcome =
        cannot_start(arguments, session,
                     fmt::format("rank {} cannot start; its message stands beside this one", rank));
    outcome.exit_code = static_cast<int>(code);
    return outcome;
  }
  for (size_t i = kWords; i < all.size(); ++i) {
    if (all[i] == all[i % kWords]) continue;
    return cannot_start(arguments, session,
                        fmt::format("ranks disagree on {}: rank {} differs from rank 0; give "
                                    "every rank the same flags",
                                    mine[i % kWords].flag, i / kWords));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Outcome> agree_to_start(const Arguments& arguments, Session& session,
                                      std::optional<Outcome> mine) {
  if (!session.mpi) return mine;
  std::array<uint64_t, kWords> values = {};
  const auto words = words_of(arguments, mine ? mine->exit_code : kPass);
  for (size_t i = 0; i < kWords; ++i) values[i] = words[i].value;
  const auto deadline = std::chrono::milliseconds(static_cast<int64_t>(arguments.deadline * 1000));
  const auto all = exchange_words(*session.mpi, values, deadline);
  if (!all.ok()) {
    session.lost = true;
    return mine ? std::move(mine) : failed(all.error(), arguments.problem, session.mpi->size());
  }
  if (!mine) return verdict(arguments, session, *all);
  if (!session.reports() && all->front() != kPass) mine->error.clear();  // rank 0 says it
  return mine;
}

}  // namespace longspan::tool
