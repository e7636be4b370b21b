#include "comm/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/errors.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kDeadline{100};

class Fake final : public Watched {
 public:
  explicit Fake(int peer) : peer_(peer) {}
  bool begun() const override { return has_begun; }
  bool ended() const override { return has_ended; }
  Error late(milliseconds deadline) const override {
    return late_peer({.kind = TransferKind::kRecv, .peer = peer_}, 1, deadline, "fake");
  }
  bool has_begun = false;
  bool has_ended = false;

 private:
  int peer_;
};

/// A watch whose thread sleeps: tests look themselves, at a time of their choice.
struct Scene {
  Watch::Clock::time_point now;
  std::optional<Error> lost;
  int releases = 0;
  Watch watch{{.lost = [this] { return lost; },
               .release = [this](const Error&) { ++releases; },
               .now = [this] { return now; }},
              std::chrono::hours(1)};
  void look_after(milliseconds passed) {
    now += passed;
    watch.check();
  }
};

TEST(Watch, TransfersAreLateFromTheirBeginning) {
  Scene scene;
  Fake transfers(3);
  scene.watch.add(transfers, kDeadline);
  scene.look_after(10 * kDeadline);
  EXPECT_TRUE(scene.watch.health().ok()) << "the device is not there yet";
  transfers.has_begun = true;
  scene.look_after(kDeadline);
  scene.look_after(kDeadline);
  EXPECT_TRUE(scene.watch.health().ok()) << "not longer than the deadline";
  scene.look_after(milliseconds(1));
  const Status health = scene.watch.health();
  ASSERT_FALSE(health.ok());
  EXPECT_EQ(health.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(health.error().message, HasSubstr("rank 3"));
  EXPECT_EQ(scene.releases, 1);
}

TEST(Watch, WhatEndedOrWasRemovedIsNeverLate) {
  Scene scene;
  Fake ended(1);
  Fake removed(2);
  ended.has_begun = removed.has_begun = true;
  scene.watch.add(ended, kDeadline);
  scene.watch.add(removed, kDeadline);
  scene.look_after(kDeadline);
  ended.has_ended = true;
  scene.watch.remove(removed);
  scene.look_after(10 * kDeadline);
  EXPECT_TRUE(scene.watch.health().ok());
  ended.has_ended = false;  // reused, not added again
  scene.look_after(10 * kDeadline);
  EXPECT_TRUE(scene.watch.health().ok());
}

TEST(Watch, WhoWaitsForEverIsNotLateAtOnce) {
  Scene scene;
  Fake transfers(1);
  transfers.has_begun = true;
  scene.watch.add(transfers, milliseconds::max());
  scene.look_after(milliseconds(0));
  scene.look_after(std::chrono::hours(24));
  EXPECT_TRUE(scene.watch.health().ok());
}

TEST(Watch, ALostPeerFailsWithoutTransfers) {
  Scene scene;
  scene.lost = left_peer(1, "it died", "fake");
  scene.look_after(milliseconds(1));
  EXPECT_THAT(scene.watch.health().error().message, HasSubstr("rank 1 left: it died"));
}

TEST(Watch, TheFirstFailureStaysAndReleasesAgainAndAgain) {
  Scene scene;
  scene.watch.fail(left_peer(1, "first", "fake"));
  scene.watch.fail(left_peer(2, "second", "fake"));
  scene.look_after(milliseconds(1));
  scene.look_after(milliseconds(1));
  EXPECT_THAT(scene.watch.health().error().message, HasSubstr("first"));
  EXPECT_EQ(scene.releases, 2);
}

TEST(Watch, ItsThreadLooksByItself) {
  std::atomic<int> releases = 0;
  Watch watch({.lost = [] { return std::optional<Error>(left_peer(1, "it died", "fake")); },
               .release = [&](const Error&) { ++releases; }},
              milliseconds(1));
  while (releases < 2) std::this_thread::yield();
  EXPECT_FALSE(watch.health().ok());
}

}  // namespace
}  // namespace longspan::comm
