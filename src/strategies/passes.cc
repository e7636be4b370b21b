// The attend steps: the group's own keys first, then those of the other groups as they arrive.
//
// At step s a group sends to the one s places on and receives from the one s places back, only the
// keys that the receiver's queries see. Both are one step: behind each other they would wait in a
// circle where a rank's transfers run one after the other. The partial dk and dv of a step go
// straight back to the keys' owner in accumulator type, which adds them in the order of the steps.
#include "strategies/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace longspan {

int64_t Passes::run() {
  const bool gathers = e_.gathers;
  if (gathers && !backward()) return attend_pulled(e_, b_);
  own_ = {.k = b_.k, .v = b_.v, .dk = b_.dk, .dv = b_.dv, .tiles = e_.own.tiles};
  key_rows_ = e_.k.rows;
  for (int s = 1; s < e_.arrangement.rings; ++s) passes_.push_back(pass(s));
  if (passes_.empty()) {
    attend({own_});
  } else if (gathers) {
    gather_whole();
  } else {
    e_.arrangement.gather ? gather() : ring();
  }
  return key_rows_;
}

Pass Passes::pass(int distance) const {
  const int groups = e_.arrangement.rings;
  const int source = (e_.group - distance + groups) % groups;
  const int user = (e_.group + distance) % groups;
  return {.source = e_.group_rank(source),
          .user = e_.group_rank(user),
          .incoming = meet(e_.problem, e_.q, e_.group_rows(SideOf::kKey, source)),
          .outgoing = meet(e_.problem, e_.group_rows(SideOf::kQuery, user), e_.k)};
}

void Passes::attend(std::vector<Part> parts) {
  e_.builder.attend({.kind = backward() ? StepKind::kAttendBackward : StepKind::kAttend,
                     .parts = std::move(parts),
                     .q = b_.q,
                     .o = b_.o,
                     .lse = b_.lse,
                     .max_logit = b_.max_logit,
                     .dout = b_.dout,
                     .delta = b_.delta,
                     .dq = b_.dq});
}

Slot Passes::slot() {
  Builder& b = e_.builder;
  return {b.region(), b.region(), b.region(), b.region()};
}

BufferId Passes::place(RegionId region, Quantity quantity, DType dtype, const Rows& rows,
                       std::string_view role, int peer) {
  return e_.builder.place(region, {.quantity = quantity,
                                   .name = fmt::format("{}.{}{}", name(quantity), role, peer),
                                   .dtype = dtype,
                                   .rows = rows.rows,
                                   .heads = e_.share.kv_heads(),
                                   .dim = e_.dim_of(quantity),
                                   .head_begin = e_.share.kv_begin,
                                   .runs = rows.runs});
}

std::vector<Copy> Passes::needed_rows(const Meeting& meeting, BufferId own, BufferId message,
                                      bool to_message) const {
  std::vector<Copy> copies;
  for (size_t i = 0; i < meeting.needed.runs.size(); ++i) {
    const Run& run = meeting.needed.runs[i];
    Copy copy{.src = own,
              .dst = message,
              .src_row = meeting.source[i],
              .dst_row = run.row,
              .rows = run.valid,
              .heads = e_.share.kv_heads()};
    if (!to_message) {
      std::swap(copy.src, copy.dst);
      std::swap(copy.src_row, copy.dst_row);
    }
    copies.push_back(copy);
  }
  return copies;
}

Message Passes::pack_keys(const Pass& pass, RegionId region) {
  if (pass.outgoing.needed.rows == 0) return {};
  std::vector<BufferId> ids;
  std::vector<Copy> copies;
  for (const auto& [quantity, own] : {std::pair{Quantity::kK, b_.k}, {Quantity::kV, b_.v}}) {
    ids.push_back(place(region, quantity, e_.problem.dtype, pass.outgoing.needed, "to", pass.user));
    const std::vector<Copy> more = needed_rows(pass.outgoing, own, ids.back(), true);
    copies.insert(copies.end(), more.begin(), more.end());
  }
  e_.builder.copy(StepKind::kPack, std::move(copies));
  return Builder::message(TransferKind::kSend, pass.user, kKeysValues, std::move(ids));
}

/// Where the source's keys and values arrive, and the tiles on them.
std::pair<Message, Part> Passes::receive_keys(const Pass& pass, RegionId region) {
  const Rows& rows = pass.incoming.needed;
  if (rows.rows == 0) return {};
  key_rows_ = std::max(key_rows_, rows.rows);
  const DType dtype = e_.problem.dtype;
  Part part{.k = place(region, Quantity::kK, dtype, rows, "from", pass.source),
            .v = place(region, Quantity::kV, dtype, rows, "from", pass.source),
            .tiles = on_needed_rows(pass.incoming)};
  return {Builder::message(TransferKind::kRecv, pass.source, kKeysValues, {part.k, part.v}),
          std::move(part)};
}

void Passes::place_partials(const Pass& pass, Part& part, RegionId region) {
  if (part.tiles.empty() || !backward()) return;
  const DType acc = accumulator(e_.problem.dtype);
  part.dk = place(region, Quantity::kDk, acc, pass.incoming.needed, "partial", pass.source);
  part.dv = place(region, Quantity::kDv, acc, pass.incoming.needed, "partial", pass.source);
}

std::vector<Fill> Passes::zeros(const Part& part) const {
  if (part.dk == kNone) return {};
  const int64_t rows = e_.builder.buffer(part.dk).rows;
  return {{part.dk, 0, rows}, {part.dv, 0, rows}};
}

Message Passes::send_partials(const Pass& pass, const Part& part) {
  if (part.dk == kNone) return {};
  return Builder::message(TransferKind::kSend, pass.source, kPartialGradients, {part.dk, part.dv});
}

std::pair<Message, std::vector<Copy>> Passes::receive_partials(const Pass& pass, RegionId region) {
  const Rows& rows = pass.outgoing.needed;
  if (rows.rows == 0 || !backward()) return {};
  const DType acc = accumulator(e_.problem.dtype);
  const BufferId dk = place(region, Quantity::kDk, acc, rows, "by", pass.user);
  const BufferId dv = place(region, Quantity::kDv, acc, rows, "by", pass.user);
  std::vector<Copy> copies = needed_rows(pass.outgoing, own_.dk, dk, false);
  const std::vector<Copy> more = needed_rows(pass.outgoing, own_.dv, dv, false);
  copies.insert(copies.end(), more.begin(), more.end());
  return {Builder::message(TransferKind::kRecv, pass.user, kPartialGradients, {dk, dv}),
          std::move(copies)};
}

void Passes::ring() {
  Builder& builder = e_.builder;
  const std::array<Slot, 2> slots = {slot(), slot()};
  Part next;
  const auto start = [&](size_t index) {  // the transfers that pass `index` needs
    const Slot& at = slots[index % 2];
    builder.rewind(at.recv);
    builder.rewind(at.send);
    Message sent = pack_keys(passes_[index], at.send);
    auto [received, part] = receive_keys(passes_[index], at.recv);
    next = std::move(part);
    builder.transfer(StepKind::kSendRecv, {std::move(received), std::move(sent)});
  };
  start(0);
  attend({own_});
  std::vector<Copy>
      additions;  // of the pass before, so that its transfer overlaps this one's tiles
  for (size_t i = 0; i < passes_.size(); ++i) {
    Part part = std::move(next);
    if (i + 1 < passes_.size()) start(i + 1);
    const Slot& at = slots[i % 2];
    builder.rewind(at.partial_send);
    builder.rewind(at.partial_recv);
    place_partials(passes_[i], part, at.partial_send);
    builder.fill(zeros(part));
    Message partials = send_partials(passes_[i], part);
    attend({std::move(part)});
    auto [message, copies] = receive_partials(passes_[i], at.partial_recv);
    builder.transfer(StepKind::kSendRecv, {std::move(message), std::move(partials)});
    builder.copy(StepKind::kAccumulate, std::exchange(additions, std::move(copies)));
  }
  builder.copy(StepKind::kAccumulate, std::move(additions));
}

std::vector<Part> Passes::exchange_keys(const Slot& at) {
  std::vector<Message> messages;
  std::vector<Part> parts;
  for (const Pass& pass : passes_) {
    messages.push_back(pack_keys(pass, at.send));
    auto [message, part] = receive_keys(pass, at.recv);
    messages.push_back(std::move(message));
    place_partials(pass, part, at.partial_send);
    parts.push_back(std::move(part));
  }
  e_.builder.transfer(StepKind::kAllGather, std::move(messages));
  return parts;
}

std::vector<Copy> Passes::exchange_partials(const std::vector<Part>& parts, const Slot& at) {
  std::vector<Message> messages;
  for (size_t i = 0; i < parts.size(); ++i) {
    messages.push_back(send_partials(passes_[i], parts[i]));
  }
  std::vector<Copy> additions;
  for (const Pass& pass : passes_) {
    auto [message, copies] = receive_partials(pass, at.partial_recv);
    messages.push_back(std::move(message));
    additions.insert(additions.end(), copies.begin(), copies.end());
  }
  e_.builder.transfer(StepKind::kReduceScatter, std::move(messages));
  return additions;
}

void Passes::gather() {
  const Slot at = slot();
  const std::vector<Part> arrivals = exchange_keys(at);
  std::vector<Fill> fills;
  std::vector<Part> parts = {own_};
  for (const Part& part : arrivals) {
    const std::vector<Fill> more = zeros(part);
    fills.insert(fills.end(), more.begin(), more.end());
    parts.push_back(part);
  }
  e_.builder.fill(std::move(fills));
  attend(std::move(parts));
  e_.builder.copy(StepKind::kAccumulate, exchange_partials(arrivals, at));
}

int64_t attend_all(Emission& emission, const AttendBuffers& buffers) {
  if (emission.share.q_heads() == 0) return 0;  // a member without heads takes no part
  return Passes(emission, buffers).run();
}

}  // namespace longspan
