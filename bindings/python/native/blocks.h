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

/// Of the saved buffers with this rank's LSE behind them; aligned.
int64_t kept_bytes(const Call& call, const SavedBlock& saved);

}  // namespace longspan::python
