#include <fmt/format.h>

#include "schedule/check.h"
#include "schedule/matching.h"

namespace longspan::proof {
namespace {

class Messages {
 public:
  explicit Messages(std::span<const Schedule> schedules)
      : schedules_(schedules), sides_(schedules) {}

  Status match() const {
    for (size_t i = 0; i < sides_.size(); ++i) {
      const MessageSide& side = sides_[i];
      if (side.partner == kNobody) return unmatched(side);
      if (!side.receives) LONGSPAN_CHECK_OK(check_pair(side, sides_[side.partner]));
    }
    return {};
  }

 private:
  Error fail(const MessageSide& side, std::string_view what) const {
    const BufferId buffer = side.message->buffers.front();
    return defect(schedules_[static_cast<size_t>(side.rank())], side.step, buffer, what);
  }

  Error unmatched(const MessageSide& side) const {
    return fail(side,
                fmt::format("{} rank {} with tag {}, which {}",
                            side.receives ? "receives from" : "sends to", side.message->peer,
                            side.tag, side.receives ? "sends less often" : "receives less often"));
  }

  Status check_pair(const MessageSide& send, const MessageSide& recv) const {
    if (send.message->bytes != recv.message->bytes) {
      return fail(recv,
                  fmt::format("expects {} bytes, rank {} sends {} in step {}", recv.message->bytes,
                              send.rank(), send.message->bytes, send.step));
    }
    const std::vector<BufferId>& sent = send.message->buffers;
    const std::vector<BufferId>& received = recv.message->buffers;
    if (sent.size() != received.size()) {
      return fail(recv, fmt::format("expects {} buffers, rank {} sends {} in step {}",
                                    received.size(), send.rank(), sent.size(), send.step));
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      const Buffer& a = buffer_of(schedules_[static_cast<size_t>(send.rank())], sent[i]);
      const Buffer& b = buffer_of(schedules_[static_cast<size_t>(recv.rank())], received[i]);
      const bool kind = a.quantity == b.quantity && a.dtype == b.dtype && a.dim == b.dim;
      const bool heads = a.head_begin == b.head_begin && a.heads == b.heads;
      if (kind && heads && a.rows == b.rows && a.runs == b.runs) continue;
      return fail(recv, fmt::format("\"{}\" would get \"{}\" of rank {} (step {}), which differs "
                                    "in {}",
                                    b.name, a.name, send.rank(), send.step,
                                    !kind    ? "quantity or type"
                                    : !heads ? "heads"
                                             : "rows"));
    }
    return {};
  }

  std::span<const Schedule> schedules_;
  MessageSides sides_;
};

}  // namespace

Status check_message(const Schedule& schedule, StepId id, const Message& message) {
  const auto fail = [&](std::string_view what, BufferId buffer = kNone) {
    return defect(schedule, id, buffer, what);
  };
  if (message.peer < 0 || message.peer >= schedule.ranks || message.peer == schedule.rank) {
    return fail(fmt::format("peer {} of {} ranks", message.peer, schedule.ranks));
  }
  if (message.bytes <= 0 || message.buffers.empty()) return fail("message of no bytes");
  if (message.offset % kMessageAlignment != 0) {
    return fail(fmt::format("message at {}, no multiple of {}", message.offset, kMessageAlignment));
  }
  int64_t end = message.offset;
  for (const BufferId part : message.buffers) {
    if (part < 0 || static_cast<size_t>(part) >= schedule.buffers.size()) {
      return fail("message of an unknown buffer");
    }
    const Buffer& buffer = buffer_of(schedule, part);
    if (buffer.space != Space::kWorkspace) return fail("message outside the workspace", part);
    const int64_t begin = (end + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
    if (buffer.offset != begin) {
      return fail(fmt::format("lies at {}, the message needs it at {}", buffer.offset, begin),
                  part);
    }
    end = buffer.offset + buffer.bytes();
  }
  if (end - message.offset == message.bytes) return {};
  return fail(
      fmt::format("message of {} bytes, its buffers have {}", message.bytes, end - message.offset),
      message.buffers.front());
}

Status check_messages(std::span<const Schedule> schedules) { return Messages(schedules).match(); }

}  // namespace longspan::proof
