// Lost and late peers of transfers that a device works on while no host thread waits for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "longspan/status.h"

namespace longspan::comm {

/// Transfers that a device works on. Asked from the watch's thread.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Whether the device has done everything before them.
  virtual bool begun() const = 0;
  virtual bool ended() const = 0;
  /// The peer_lost to report when they did not end within `deadline` of their beginning.
  virtual Error late(std::chrono::milliseconds deadline) const = 0;
};

/// A thread that looks at the transfers of one communicator. Thread-safe.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  struct Hooks {
    /// The error for a peer that is known to be gone.
    std::function<std::optional<Error>()> lost;
    /// Called in every round from the first failure on: ends what the device waits for. Device work
    /// that was queued by then may wait again, hence the repetition.
    std::function<void(const Error&)> release;
    std::function<Clock::time_point()> now = Clock::now;
  };

  /// Looks every `period`.
  explicit Watch(Hooks hooks, std::chrono::milliseconds period = std::chrono::milliseconds(20));
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Looks at `transfers` until they have ended or are removed.
  void add(const Watched& transfers, std::chrono::milliseconds deadline);
  /// On return nobody looks at `transfers` any more.
  void remove(const Watched& transfers);

  /// The first failure; OK while there is none. Cheap.
  Status health() const;
  /// A failure that was found elsewhere. Only the first counts.
  void fail(const Error& error);

  /// One look, as the thread does it.
  void check();

 private:
  struct Entry {
    const Watched* transfers;
    std::chrono::milliseconds deadline;
    std::optional<Clock::time_point> begun;
  };

  void run(std::chrono::milliseconds period);
  /// Forgets what has ended. The error of transfers that are late.
  std::optional<Error> look();

  Hooks hooks_;
  std::mutex looking_;  // guards entries_
  std::vector<Entry> entries_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex failing_;  // guards error_
  std::optional<Error> error_;
  std::mutex stopping_;  // guards stop_
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace longspan::comm
