#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace longspan::tool {

Progress::Progress(bool enabled) : enabled_(enabled && ::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& what, double done) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && done < 1 && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 40;
  const int filled = std::clamp(static_cast<int>(done * kWidth), 0, kWidth);
  fmt::print(stderr, "\r{:<16} [{:#<{}}{:.<{}}] {:3.0f}%", what, "", filled, "", kWidth - filled,
             100 * done);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r{:70}\r", "");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace longspan::tool
