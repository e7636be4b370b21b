#include "setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace longspan::tool {

Status check_keys(const Problem& problem, bool forward_only) {
  const auto decline = [](std::string message) {
    return Error{ErrorCode::kUnsupported, std::move(message), "problem"};
  };
  if (problem.fp8 != Fp8::kNone) {
    return decline(fmt::format("fp8={}: no provider computes in 8 bits yet; remove the key",
                               name(problem.fp8)));
  }
  if (problem.page == 0 || forward_only) return {};
  return decline(
      fmt::format("page={}: keys and values in pages are forward only; remove the key or "
                  "give --backward none",
                  problem.page));
}

std::vector<std::string> feature_texts(const Problem& problem) {
  constexpr std::array<std::string_view, 14> kFeatures = {
      "window",  "prefix",       "chunk", "softcap", "alibi",         "bias",      "sink",
      "dropout", "dropout_seed", "page",  "fp8",     "deterministic", "invariant", "max_logit"};
  std::vector<std::string> texts;
  std::istringstream words(problem.text());
  for (std::string word; words >> word;) {
    const std::string_view key = std::string_view(word).substr(0, word.find('='));
    if (std::find(kFeatures.begin(), kFeatures.end(), key) == kFeatures.end()) continue;
    constexpr size_t kLongest = 60;  // a prefix per sequence
    texts.push_back(word.size() <= kLongest ? word : word.substr(0, kLongest) + "...");
  }
  return texts;
}

Result<std::vector<Schedule>> build_schedules(const Setting& setting, const Strategy& strategy,
                                              Direction direction, const std::vector<int>& ranks) {
  std::vector<std::optional<Result<Schedule>>> built(ranks.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < ranks.size(); i = next++) {
      built[i] = strategy.build(setting, direction, ranks[i]);
    }
  };
  const size_t helpers = std::min<size_t>(ranks.size(), std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::vector<Schedule> schedules;
  for (auto& schedule : built) {
    if (!schedule->ok()) return std::move(*schedule).error();
    schedules.push_back(std::move(*schedule).value());
  }
  return schedules;
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> sample_ranks(int ranks, int most) {
  if (ranks <= most) return all_ranks(ranks);
  std::vector<int> sample;
  for (int64_t i = 0; i < most; ++i) {
    sample.push_back(static_cast<int>(i * (ranks - 1) / (most - 1)));
  }
  return sample;
}

std::string duration_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} us", seconds * 1e6);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

}  // namespace longspan::tool
