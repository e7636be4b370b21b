// Blocks of memory that callers allocate whole, and what lies where in them.
#pragma once

#include <cstdint>
#include <vector>

#include "longspan/engine.h"

namespace longspan::python {

/// The saved buffers of a call, one behind the other, aligned as workspaces are.
class SavedBlock {
 public:
  explicit SavedBlock(const Call& call);

  int64_t bytes() const { return bytes_; }
  /// The buffers of the block that begins at `address`.
  Saved at(int64_t address) const;

 private:
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
};

/// What a forward call without gradient needs and nobody sees: LSE, saved buffers, workspace.
struct Scratch {
  int64_t address = 0;
  int64_t bytes = 0;

  /// Takes `count` bytes from the front; the rest stays aligned. What is not there is null, and the
  /// engine names what it misses.
  int64_t take(int64_t count);
};

int64_t aligned(int64_t bytes);
/// Of the Scratch of a call, on this rank.
int64_t scratch_bytes(const Call& call, const SavedBlock& saved);

}  // namespace longspan::python
