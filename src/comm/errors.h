// The messages that all communicators share, so that a caller reads the same for the same trouble.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "longspan/communicator.h"

namespace longspan::comm {

/// peer_lost: the other side of `transfer` did not come in time; `open` counts all that are
/// missing.
Error late_peer(const Transfer& transfer, int open, std::chrono::milliseconds deadline,
                const char* where);

/// peer_lost: the peer said that it gives up, or its communicator is gone.
Error left_peer(int peer, const std::string& reason, const char* where);

/// invalid_argument: the request was never started here, or was waited for before.
Error unknown_request(Request request, const char* where);

/// What two sides of a message that do not fit state.
struct Sizes {
  int source = 0;
  size_t sent = 0;
  bool at_least = false;  // `sent` is all that has been seen so far
  int destination = 0;
  size_t expected = 0;
  uint32_t tag = 0;
};

/// The text of the invalid_argument that both sides get.
std::string mismatch_text(const Sizes& sizes);

}  // namespace longspan::comm
