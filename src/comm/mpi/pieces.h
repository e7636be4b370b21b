// How a message is cut into pieces that MPI can carry.
#pragma once

#include <algorithm>
#include <cstddef>

namespace longspan::comm {

/// The next piece of a message of `bytes` bytes of which `done` are cut already. A piece shorter
/// than `limit` is the last one; a message that is a multiple of `limit` ends with an empty piece.
/// So a receiver notices a longer message at the piece where it expects the end.
inline size_t next_piece(size_t bytes, size_t done, size_t limit) {
  return std::min(bytes - done, limit);
}

}  // namespace longspan::comm
