// Threads that share work with their maker.
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace longspan {

/// Threads that call work(): `count` of them, or fewer where the system gives no more. Whoever
/// starts them takes part in the work, so that it is done without any.
template <class Work>
std::vector<std::thread> start_threads(size_t count, const Work& work) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // Those that are there do it.
  }
  return threads;
}

}  // namespace longspan
