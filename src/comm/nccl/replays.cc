#include "comm/nccl/replays.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/deadline.h"

namespace longspan::comm {

Result<std::unique_ptr<NcclReplays>> NcclReplays::make() {
  LONGSPAN_TRY(cuda::PassCounter begun, cuda::PassCounter::make());
  LONGSPAN_TRY(cuda::PassCounter ended, cuda::PassCounter::make());
  return std::unique_ptr<NcclReplays>(new NcclReplays(std::move(begun), std::move(ended)));
}

void NcclReplays::set_deadline(std::chrono::milliseconds deadline) {
  deadline_ms_ = std::max<int64_t>(deadline_ms_, capped(deadline).count());
}

std::optional<Error> NcclReplays::late(Clock::time_point now) {
  const uint64_t ended = ended_.passed();  // read first: never ahead of the begun ones
  const uint64_t begun = begun_.passed();
  if (begun == ended || begun != last_) {
    last_ = begun;
    since_ = now;
    return std::nullopt;
  }
  const std::chrono::milliseconds deadline(deadline_ms_);
  if (now - since_ <= deadline) return std::nullopt;
  return Error{
      ErrorCode::kPeerLost,
      fmt::format("transfers in the replay of a captured graph did not end within {} ms; a "
                  "peer died, or is slower than the deadline",
                  deadline.count()),
      "nccl"};
}

}  // namespace longspan::comm
