// Worker threads shared by all ranks of a process that compute at the same time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace longspan {

/// A pool that runs index loops. Thread-safe: loops of several callers share the threads.
class Workers {
 public:
  /// `threads` counts the caller: threads - 1 are started, or as many as the system gives.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(pool_.size()) + 1; }

  /// Calls body(context, index, slot) for every index in [0, count), in any order, on the caller
  /// and free workers; returns when all are done. Calls that run at the same time in one loop have
  /// different slots in [0, threads()). Bodies must not throw. Allocates nothing.
  void run(int64_t count, void (*body)(void* context, int64_t index, int slot), void* context);

  /// The same for any callable body(index, slot).
  template <class Body>
  void for_each(int64_t count, Body&& body) {
    run(
        count,
        [](void* context, int64_t index, int slot) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(index, slot);
        },
        static_cast<void*>(&body));
  }

 private:
  struct Loop;  // lives on the caller's stack

  void work();
  void take_part(Loop& loop, int slot);

  std::mutex mutex_;
  std::condition_variable wake_;
  Loop* first_ = nullptr;  // open loops, linked
  bool stop_ = false;
  std::vector<std::thread> pool_;
};

}  // namespace longspan
