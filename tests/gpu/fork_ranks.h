// Ranks as processes of a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace longspan::testing {

/// Exit codes of processes that run body(rank); 137: killed. The caller's process has not touched
/// CUDA.
inline std::vector<int> fork_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      try {
        body(rank);
      } catch (const std::exception& failure) {  // must not unwind into the parent's tests
        ADD_FAILURE() << failure.what();
      }
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

/// The process is killed while it goes on.
inline void die_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGKILL);
  }).detach();
}

}  // namespace longspan::testing
