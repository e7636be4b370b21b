#include "comm/watch.h"

#include <utility>

#include "comm/deadline.h"

namespace longspan::comm {

Watch::Watch(Hooks hooks, std::chrono::milliseconds period)
    : hooks_(std::move(hooks)), thread_([this, period] { run(period); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(stopping_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void Watch::add(const Watched& transfers, std::chrono::milliseconds deadline) {
  const std::lock_guard lock(looking_);
  entries_.push_back(
      {.transfers = &transfers, .deadline = capped(deadline), .begun = std::nullopt});
}

void Watch::remove(const Watched& transfers) {
  const std::lock_guard lock(looking_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.transfers == &transfers; });
}

Status Watch::health() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(failing_);
  return *error_;
}

void Watch::fail(const Error& error) {
  const std::lock_guard lock(failing_);
  if (error_) return;
  error_ = error;
  failed_.store(true, std::memory_order_release);
}

std::optional<Error> Watch::look() {
  const std::lock_guard lock(looking_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.transfers->ended(); });
  const Clock::time_point now = hooks_.now();
  for (Entry& entry : entries_) {
    if (!entry.begun && entry.transfers->begun()) entry.begun = now;
    if (entry.begun && now - *entry.begun > entry.deadline) {
      return entry.transfers->late(entry.deadline);
    }
  }
  return std::nullopt;
}

void Watch::check() {
  if (health().ok()) {
    if (const auto error = hooks_.lost()) {
      fail(*error);
    } else if (const auto late = look()) {
      fail(*late);
    }
  }
  const Status status = health();
  if (!status.ok()) hooks_.release(status.error());
}

void Watch::run(std::chrono::milliseconds period) {
  std::unique_lock lock(stopping_);
  while (!stopped_.wait_for(lock, period, [this] { return stop_; })) {
    lock.unlock();
    check();
    lock.lock();
  }
}

}  // namespace longspan::comm
