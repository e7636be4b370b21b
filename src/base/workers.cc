#include "base/workers.h"

#include <algorithm>

#include "base/threads.h"

namespace longspan {

struct Workers::Loop {
  int64_t count = 0;
  void (*body)(void*, int64_t, int) = nullptr;
  void* context = nullptr;
  int64_t next = 0;  // guarded by mutex_, as all below
  int slots = 1;     // slot 0 is the caller's
  int active = 0;    // workers inside
  std::condition_variable left;
  Loop* following = nullptr;
};

Workers::Workers(int threads) {
  const auto others = static_cast<size_t>(std::max(threads, 1) - 1);
  pool_ = start_threads(others, [this] { work(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : pool_) thread.join();
}

void Workers::run(int64_t count, void (*body)(void*, int64_t, int), void* context) {
  if (pool_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(context, i, 0);
    return;
  }
  Loop loop;
  loop.count = count;
  loop.body = body;
  loop.context = context;
  {
    const std::lock_guard lock(mutex_);
    loop.following = first_;
    first_ = &loop;
  }
  wake_.notify_all();
  take_part(loop, 0);
  std::unique_lock lock(mutex_);
  Loop** link = &first_;
  while (*link != &loop) link = &(*link)->following;
  *link = loop.following;
  loop.left.wait(lock, [&] { return loop.active == 0; });
}

void Workers::take_part(Loop& loop, int slot) {
  for (;;) {
    int64_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (loop.next >= loop.count) return;
      index = loop.next++;
    }
    loop.body(loop.context, index, slot);
  }
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  const auto open = [this] {
    for (Loop* loop = first_; loop != nullptr; loop = loop->following) {
      if (loop->next < loop->count) return loop;
    }
    return static_cast<Loop*>(nullptr);
  };
  while (true) {
    Loop* loop = nullptr;
    wake_.wait(lock, [&] { return stop_ || (loop = open()) != nullptr; });
    if (stop_) return;
    const int slot = loop->slots++;
    ++loop->active;
    lock.unlock();
    take_part(*loop, slot);
    lock.lock();
    if (--loop->active == 0) loop->left.notify_all();
  }
}

}  // namespace longspan
