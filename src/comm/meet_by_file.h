// How ranks that share a file system and nothing else tell each other some words.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longspan/status.h"

namespace longspan::comm {

struct FileMeeting {
  std::string path;  // of no file: rank r writes PATH.r
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{60000};
};

/// Collective. Every rank's words (as many on each), rank by rank. invalid_argument when a file is
/// of another meeting: it was there before this rank, is older than the deadline, or has another
/// size. peer_lost names the ranks whose files did not appear in time.
Result<std::vector<uint64_t>> meet_by_file(const FileMeeting& meeting,
                                           std::span<const uint64_t> mine);

/// Removes this rank's file, once nobody needs to read it.
void leave_meeting(const FileMeeting& meeting);

}  // namespace longspan::comm
