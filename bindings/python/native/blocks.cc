#include "blocks.h"

namespace longspan::python {
namespace {

int64_t lse_bytes(const Call& call) {
  const Problem& problem = call.problem();
  const int rank = call.schedule(Direction::kForward).rank;
  return call.partition().q(rank).rows * problem.heads_q * size_of(accumulator(problem.dtype));
}

}  // namespace

int64_t aligned(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(kWorkspaceAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

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

int64_t Scratch::take(int64_t count) {
  const int64_t taken = aligned(count);
  if (taken > bytes) return 0;
  const int64_t begin = address;
  address += taken;
  bytes -= taken;
  return begin;
}

int64_t scratch_bytes(const Call& call, const SavedBlock& saved) {
  return aligned(lse_bytes(call)) + saved.bytes() +
         static_cast<int64_t>(call.workspace_bytes(Direction::kForward));
}

}  // namespace longspan::python
