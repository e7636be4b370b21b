// A progress bar on standard error, where that is a terminal.
#pragma once

#include <chrono>
#include <string>

namespace longspan::tool {

/// Shows nothing unless standard error is a terminal. Used by one thread at a time.
class Progress {
 public:
  explicit Progress(bool enabled);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` in [0, 1] of `what`. Redraws at most ten times a second.
  void show(const std::string& what, double done);
  void clear();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace longspan::tool
