#include "blocks.h"

namespace longspan::python {
namespace {

int64_t aligned(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(kWorkspaceAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

SavedBlock::SavedBlock(const Call& call) {
  for (const BufferSpec& spec : call.saved_layout()) {
    if (!spec.alias.empty()) continue;
    offsets_.push_back(bytes_);
    bytes_ += aligned(spec.shape[0] * spec.shape[1] * spec.shape[2] * size_of(spec.dtype));
  }
}

Saved SavedBlock::at(int64_t address) const {
  Saved saved;
  for (const int64_t offset : offsets_) saved.push_back(reinterpret_cast<void*>(address + offset));
  return saved;
}

int64_t kept_bytes(const Call& call, const SavedBlock& saved) {
  const Problem& problem = call.problem();
  const int rank = call.schedule(Direction::kForward).rank;
  const int64_t statistics = call.partition().q(rank).rows * problem.heads_q;
  return saved.bytes() + aligned(statistics * size_of(accumulator(problem.dtype)));
}

}  // namespace longspan::python
