#include <fmt/format.h>

#include "schedule/check.h"
#include "schedule/matching.h"

namespace longspan::proof {
namespace {

class Messages {
 public:
  explicit Messages(std::span<const Schedule> schedules)
      : schedules_(schedules), sides_(schedules) {
    for (const Schedule& schedule : schedules) {
      first_step_.push_back(pending_.size());
      for (const Step& step : schedule.steps) {
        pending_.push_back(static_cast<int32_t>(step.messages.size()));
      }
    }
    posted_.resize(sides_.size(), 0);
    next_.resize(schedules.size(), 0);
    waits_for_.resize(schedules.size(), kNone);
  }

  Status match() const {
    for (size_t i = 0; i < sides_.size(); ++i) {
      const MessageSide& side = sides_[i];
      if (side.partner == kNobody) return unmatched(side);
      if (!side.receives) LONGSPAN_CHECK_OK(check_pair(side, sides_[side.partner]));
    }
    return {};
  }

  /// Runs all ranks as the executor would: steps in list order, transfers posted without waiting
  /// for them, a message done when both sides are posted.
  Status finish() {
    ready_.reserve(schedules_.size());
    for (size_t rank = schedules_.size(); rank > 0; --rank) ready_.push_back(rank - 1);
    while (!ready_.empty()) {
      const size_t rank = ready_.back();
      ready_.pop_back();
      walk(rank);
    }
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      if (waits_for_[rank] == kNone) continue;
      return defect(
          schedules_[rank], static_cast<StepId>(next_[rank]), kNone,
          fmt::format("deadlock: step {} ({}), which it waits for, never ends", waits_for_[rank],
                      name(step_of(schedules_[rank], waits_for_[rank]).kind)));
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

  int32_t& pending(size_t rank, StepId step) {
    return pending_[first_step_[rank] + static_cast<size_t>(step)];
  }

  /// The first unfinished transfer that the step waits for.
  StepId blocker(size_t rank, const Step& step) {
    for (const StepId earlier : step.after) {
      if (pending(rank, earlier) > 0) return earlier;
    }
    for (const Part& part : step.parts) {
      if (part.after != kNone && pending(rank, part.after) > 0) return part.after;
    }
    return kNone;
  }

  void walk(size_t rank) {
    const Schedule& schedule = schedules_[rank];
    for (; next_[rank] < schedule.steps.size(); ++next_[rank]) {
      const Step& step = schedule.steps[next_[rank]];
      waits_for_[rank] = blocker(rank, step);
      if (waits_for_[rank] != kNone) return;
      const size_t first = sides_.first(rank, next_[rank]);
      for (size_t i = 0; i < step.messages.size(); ++i) post(first + i);
    }
  }

  void post(size_t place) {
    posted_[place] = 1;
    const MessageSide& side = sides_[place];
    if (!posted_[side.partner]) return;
    for (const MessageSide* end : {&side, &sides_[side.partner]}) {
      const auto rank = static_cast<size_t>(end->rank());
      if (--pending(rank, end->step) == 0 && waits_for_[rank] == end->step) {
        waits_for_[rank] = kNone;
        ready_.push_back(rank);
      }
    }
  }

  std::span<const Schedule> schedules_;
  MessageSides sides_;
  std::vector<size_t> first_step_;  // of each rank, in `pending_`
  std::vector<int32_t> pending_;    // messages of each step that are not done
  std::vector<char> posted_;
  std::vector<size_t> next_;  // of each rank: the step that it is at
  std::vector<StepId> waits_for_;
  std::vector<size_t> ready_;
};

}  // namespace

Status check_message(const Schedule& schedule, StepId id, const Message& message) {
  const Step& step = step_of(schedule, id);
  const auto fail = [&](std::string_view what, BufferId buffer = kNone) {
    return defect(schedule, id, buffer, what);
  };
  if (message.peer < 0 || message.peer >= schedule.ranks || message.peer == schedule.rank) {
    return fail(fmt::format("peer {} of {} ranks", message.peer, schedule.ranks));
  }
  const bool send = message.kind == TransferKind::kSend;
  if (step.kind == StepKind::kSend && !send) return fail("receives");
  if (step.kind == StepKind::kRecv && send) return fail("sends");
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

Status check_messages(std::span<const Schedule> schedules) {
  Messages messages(schedules);
  LONGSPAN_CHECK_OK(messages.match());
  return messages.finish();
}

}  // namespace longspan::proof
