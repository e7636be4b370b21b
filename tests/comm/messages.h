// Messages whose bytes tell where they come from, and the waits of the bodies.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "comm/bodies.h"
#include "longspan/communicator.h"

namespace longspan::test {

using Bytes = std::vector<unsigned char>;
inline constexpr size_t kCanary = 64;
inline constexpr size_t kPeriod = 4093;  // prime: pieces and pages that change places are noticed
inline constexpr unsigned char kCanaryByte = 0xA5;

inline Transfer send_of(Bytes& data, int peer, uint32_t tag) {
  return {TransferKind::kSend, peer, tag, data.data(), data.size()};
}

/// One period of the bytes of a message, told apart by message, source and destination. Whole
/// periods are copied and compared, because loops over bytes are slow under the sanitizers.
inline Bytes pattern(int source, int destination, size_t message) {
  std::mt19937 random(static_cast<unsigned>(source * 1009 + destination) * 9176 +
                      static_cast<unsigned>(message));
  Bytes bytes(kPeriod);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

/// A receive buffer whose neighbourhood must stay as it is.
class Inbox {
 public:
  explicit Inbox(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kCanary, kCanaryByte) {}
  Transfer transfer(int peer, uint32_t tag) {
    return {TransferKind::kRecv, peer, tag, memory_.data() + kCanary, bytes_};
  }
  void expect(int source, int destination, size_t message) const {
    EXPECT_TRUE(holds(source, destination, message))
        << "message " << message << " from " << source << " to " << destination;
    const auto is_canary = [](unsigned char byte) { return byte == kCanaryByte; };
    EXPECT_TRUE(std::all_of(memory_.begin(), memory_.begin() + kCanary, is_canary));
    EXPECT_TRUE(std::all_of(memory_.end() - kCanary, memory_.end(), is_canary));
  }

 private:
  bool holds(int source, int destination, size_t message) const {
    const Bytes expected = pattern(source, destination, message);
    for (size_t i = 0; i < bytes_; i += kPeriod) {
      const size_t length = std::min(kPeriod, bytes_ - i);
      if (std::memcmp(memory_.data() + kCanary + i, expected.data(), length) != 0) return false;
    }
    return true;
  }

  size_t bytes_;
  Bytes memory_;
};

inline Bytes outbox(size_t bytes, int source, int destination, size_t message) {
  const Bytes expected = pattern(source, destination, message);
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; i += kPeriod) {
    std::memcpy(data.data() + i, expected.data(), std::min(kPeriod, bytes - i));
  }
  return data;
}

inline void finish(Communicator& communicator, const Result<Request>& request) {
  ASSERT_TRUE(request.ok()) << request.error().text();
  const Status status = communicator.wait(*request, kPatience);
  ASSERT_TRUE(status.ok()) << status.error().text();
}

inline void barrier(Communicator& communicator) {
  const auto words = exchange_words(communicator, {}, kPatience);
  ASSERT_TRUE(words.ok()) << words.error().text();
}

}  // namespace longspan::test
