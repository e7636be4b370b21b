#include "schedule/builder.h"

#include <algorithm>
#include <utility>

namespace longspan {
namespace {

int64_t align_up(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

void drop_empty(std::vector<Copy>& copies) {
  std::erase_if(copies, [](const Copy& c) { return c.rows == 0 || c.heads == 0; });
}

}  // namespace

Builder::Builder(Direction direction, std::string_view strategy, int rank, int ranks) {
  schedule_.direction = direction;
  schedule_.strategy = strategy;
  schedule_.rank = rank;
  schedule_.ranks = ranks;
}

BufferId Builder::add(Buffer buffer) {
  schedule_.buffers.push_back(std::move(buffer));
  region_of_.push_back(kNone);
  return static_cast<BufferId>(schedule_.buffers.size() - 1);
}

RegionId Builder::region() {
  regions_.emplace_back();
  return static_cast<RegionId>(regions_.size() - 1);
}

BufferId Builder::place(RegionId region, Buffer buffer) {
  Region& in = regions_[static_cast<size_t>(region)];
  buffer.space = Space::kWorkspace;
  buffer.offset = align_up(in.next, kMessageAlignment);
  in.next = buffer.offset + buffer.bytes();
  in.size = std::max(in.size, in.next);
  const BufferId id = add(std::move(buffer));
  region_of_.back() = region;
  return id;
}

void Builder::rewind(RegionId region) { regions_[static_cast<size_t>(region)].next = 0; }

Message Builder::message(TransferKind kind, int peer, uint32_t tag, std::vector<BufferId> buffers) {
  return {.kind = kind, .peer = peer, .tag = tag, .buffers = std::move(buffers)};
}

void Builder::add_edge(Step& step, StepId earlier, StepId* arrival) {
  const bool to_transfer = schedule_.steps[static_cast<size_t>(earlier)].lane == Lane::kTransfer;
  if (step.lane == Lane::kCompute) {
    if (!to_transfer || waited_[static_cast<size_t>(earlier)]) return;
    waited_[static_cast<size_t>(earlier)] = 1;
    if (arrival != nullptr && *arrival == kNone) {
      *arrival = earlier;
      return;
    }
  }
  if (std::find(step.after.begin(), step.after.end(), earlier) == step.after.end()) {
    step.after.push_back(earlier);
  }
}

void Builder::access(Step& step, BufferId id, bool write, StepId* arrival) {
  if (id == kNone) return;
  const RegionId region = region_of_[static_cast<size_t>(id)];
  if (region == kNone) return;  // operands and saved buffers are touched by compute steps alone
  const Buffer& buffer = schedule_.buffers[static_cast<size_t>(id)];
  const Access now{buffer.offset, buffer.offset + buffer.bytes(), next_step(), write};
  std::vector<Access>& accesses = regions_[static_cast<size_t>(region)].accesses;
  for (const Access& earlier : accesses) {
    const bool overlap = earlier.begin < now.end && now.begin < earlier.end;
    if (overlap && (earlier.write || write) && earlier.step != now.step) {
      add_edge(step, earlier.step, arrival);
    }
  }
  if (write) {  // what this write covers is ordered before it; later steps need not look behind it
    std::erase_if(accesses,
                  [&](const Access& a) { return now.begin <= a.begin && a.end <= now.end; });
  }
  accesses.push_back(now);
}

void Builder::push(Step step) {
  std::sort(step.after.begin(), step.after.end());
  schedule_.steps.push_back(std::move(step));
  waited_.push_back(0);
}

void Builder::copy(StepKind kind, std::vector<Copy> copies) {
  drop_empty(copies);
  if (copies.empty()) return;
  Step step{.kind = kind};
  BufferId src = kNone;  // runs of copies share their buffers
  BufferId dst = kNone;
  for (const Copy& c : copies) {
    if (c.src != src) access(step, src = c.src, false);
    if (c.dst != dst) access(step, dst = c.dst, true);
  }
  step.copies = std::move(copies);
  push(std::move(step));
}

void Builder::delta(BufferId o, BufferId dout, BufferId delta, std::vector<Copy> rows) {
  drop_empty(rows);
  if (rows.empty()) return;
  Step step{.kind = StepKind::kDelta, .o = o, .dout = dout, .delta = delta};
  access(step, o, false);
  access(step, dout, false);
  access(step, delta, true);
  step.copies = std::move(rows);
  push(std::move(step));
}

void Builder::fill(std::vector<Fill> fills) {
  std::erase_if(fills, [this](const Fill& f) { return f.rows == 0 || buffer(f.buffer).heads == 0; });
  if (fills.empty()) return;
  Step step{.kind = StepKind::kFill};
  for (const Fill& f : fills) access(step, f.buffer, true);
  step.fills = std::move(fills);
  push(std::move(step));
}

void Builder::transfer(StepKind kind, std::vector<Message> messages) {
  std::erase_if(messages, [](const Message& m) { return m.buffers.empty(); });
  if (messages.empty()) return;
  Step step{.kind = kind, .lane = Lane::kTransfer};
  for (const Message& m : messages) {
    for (const BufferId id : m.buffers) access(step, id, m.kind == TransferKind::kRecv);
  }
  step.messages = std::move(messages);
  push(std::move(step));
}

void Builder::attend(Step step) {
  std::erase_if(step.parts, [](const Part& p) { return p.tiles.empty(); });
  if (step.parts.empty()) return;
  const bool forward = step.kind == StepKind::kAttend;
  access(step, step.q, false);
  access(step, step.o, true);
  access(step, step.lse, forward);
  access(step, step.dout, false);
  access(step, step.delta, false);
  access(step, step.dq, true);
  for (Part& part : step.parts) {
    access(step, part.k, false, &part.after);
    access(step, part.v, false, &part.after);
    access(step, part.dk, true);
    access(step, part.dv, true);
  }
  push(std::move(step));
}

Schedule Builder::finish(TileProblem tiles) && {
  std::vector<int64_t> begin(regions_.size());
  int64_t end = 0;
  for (size_t i = 0; i < regions_.size(); ++i) {
    begin[i] = end;
    end = align_up(end + regions_[i].size, static_cast<int64_t>(kWorkspaceAlignment));
  }
  for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
    const RegionId region = region_of_[i];
    if (region != kNone) schedule_.buffers[i].offset += begin[static_cast<size_t>(region)];
  }
  for (Step& step : schedule_.steps) {
    for (Message& message : step.messages) {
      const Buffer& last = buffer(message.buffers.back());
      message.offset = buffer(message.buffers.front()).offset;
      message.bytes = last.offset + last.bytes() - message.offset;
    }
  }
  schedule_.workspace_bytes = end;
  schedule_.tiles = std::move(tiles);
  return std::move(schedule_);
}

}  // namespace longspan
