#include "schedule/builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace longspan {
namespace {

int64_t align_up(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

bool continues(const Copy& first, const Copy& next) {
  return next.src == first.src && next.dst == first.dst && next.src_head == first.src_head &&
         next.dst_head == first.dst_head && next.heads == first.heads && first.src_step == 1 &&
         first.dst_step == 1 && next.src_step == 1 && next.dst_step == 1 &&
         next.src_row == first.src_row + first.rows && next.dst_row == first.dst_row + first.rows;
}

/// Drops copies of nothing, and makes one of copies that continue each other: packed sequences lie
/// one behind the other on both sides more often than not.
void compact(std::vector<Copy>& copies) {
  std::erase_if(copies, [](const Copy& c) { return c.rows == 0 || c.heads == 0; });
  size_t kept = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (kept > 0 && continues(copies[kept - 1], copies[i])) {
      copies[kept - 1].rows += copies[i].rows;
    } else {
      copies[kept++] = copies[i];
    }
  }
  copies.resize(kept);
}

}  // namespace

Builder::Builder(Direction direction, std::string_view strategy, int rank, int ranks) {
  schedule_.direction = direction;
  schedule_.strategy = strategy;
  schedule_.rank = rank;
  schedule_.ranks = ranks;
  for (auto& known : known_) known.fill(kNone);
}

BufferId Builder::add(Buffer buffer) {
  schedule_.buffers.push_back(std::move(buffer));
  region_of_.push_back(region());
  regions_.back().laid_out = false;
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
  schedule_.buffers.push_back(std::move(buffer));
  region_of_.push_back(region);
  return static_cast<BufferId>(schedule_.buffers.size() - 1);
}

void Builder::rewind(RegionId region) { regions_[static_cast<size_t>(region)].next = 0; }

Message Builder::message(TransferKind kind, int peer, uint32_t tag, std::vector<BufferId> buffers) {
  return {.kind = kind, .peer = peer, .tag = tag, .buffers = std::move(buffers)};
}

void Builder::add_edge(Step& step, StepId earlier, StepId* arrival) {
  const Step& before = schedule_.steps[static_cast<size_t>(earlier)];
  const auto queue = static_cast<size_t>(queue_);
  if (step.lane == Lane::kCompute && before.lane == Lane::kTransfer) {
    if (std::exchange(waited_[static_cast<size_t>(earlier)][queue], true)) return;
    if (arrival != nullptr && *arrival == kNone) {
      *arrival = earlier;
      return;
    }
  } else if (step.lane == Lane::kCompute) {
    StepId& known = known_[queue][static_cast<size_t>(before.queue)];
    if (before.queue == queue_ || earlier <= known) return;
    known = earlier;
  }
  if (std::find(step.after.begin(), step.after.end(), earlier) == step.after.end()) {
    step.after.push_back(earlier);
  }
}

/// Makes `at` a border between segments.
void Builder::split(Region& region, int64_t at) {
  auto after = region.segments.upper_bound(at);
  if (after == region.segments.begin()) return;
  auto& [begin, segment] = *std::prev(after);
  if (begin == at || segment.end <= at) return;
  Segment rest = segment;
  segment.end = at;
  region.segments.emplace_hint(after, at, std::move(rest));
}

void Builder::access(Step& step, BufferId id, bool write, StepId* arrival) {
  if (id == kNone) return;
  Region& region = regions_[static_cast<size_t>(region_of_[static_cast<size_t>(id)])];
  const int64_t begin = buffer(id).offset;
  const int64_t end = begin + buffer(id).bytes();
  if (begin == end) return;
  const StepId now = next_step();
  split(region, begin);
  split(region, end);
  const auto first = region.segments.lower_bound(begin);
  const auto last = region.segments.lower_bound(end);
  for (auto at = first; at != last; ++at) {
    Segment& segment = at->second;
    if (segment.writer != kNone && segment.writer != now) add_edge(step, segment.writer, arrival);
    if (!write) segment.readers.push_back(now);
    for (const StepId reader : segment.readers) {
      if (write && reader != now) add_edge(step, reader, arrival);
    }
  }
  if (write) {
    region.segments.erase(first, last);
    region.segments.emplace(begin, Segment{end, now, {}});
    return;
  }
  for (int64_t from = begin; from < end;) {  // bytes read before anything wrote them
    const auto next = region.segments.lower_bound(from);
    const int64_t to = next == region.segments.end() ? end : std::min(end, next->first);
    if (from < to) region.segments.emplace_hint(next, from, Segment{to, kNone, {now}});
    from = next == region.segments.end() || next->first >= end ? end : next->second.end;
  }
}

void Builder::push(Step step) {
  step.queue = queue_;
  std::sort(step.after.begin(), step.after.end());
  schedule_.steps.push_back(std::move(step));
  waited_.push_back({});
}

void Builder::copy(StepKind kind, std::vector<Copy> copies) {
  compact(copies);
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
  compact(rows);
  if (rows.empty()) return;
  Step step{.kind = StepKind::kDelta, .o = o, .dout = dout, .delta = delta};
  access(step, o, false);
  access(step, dout, false);
  access(step, delta, true);
  step.copies = std::move(rows);
  push(std::move(step));
}

void Builder::fill(std::vector<Fill> fills) {
  std::erase_if(fills,
                [this](const Fill& f) { return f.rows == 0 || buffer(f.buffer).heads == 0; });
  if (fills.empty()) return;
  Step step{.kind = StepKind::kFill};
  for (const Fill& f : fills) access(step, f.buffer, true);
  step.fills = std::move(fills);
  push(std::move(step));
}

void Builder::sink(BufferId o, BufferId lse, std::vector<Fill> rows) {
  if (rows.empty()) return;
  Step step{.kind = StepKind::kSink, .o = o, .lse = lse};
  access(step, o, true);
  access(step, lse, true);
  step.fills = std::move(rows);
  push(std::move(step));
}

void Builder::sink_gradient(BufferId lse, BufferId delta, std::vector<Fill> rows) {
  if (rows.empty()) return;
  Step step{.kind = StepKind::kSinkGradient, .lse = lse, .delta = delta};
  access(step, lse, false);
  access(step, delta, false);
  step.fills = std::move(rows);
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

void Builder::pull(std::vector<Copy> copies, const std::vector<BufferId>& lent,
                   std::vector<int> readers) {
  compact(copies);
  if (copies.empty() && readers.empty()) return;
  Step step{.kind = StepKind::kPull, .lane = Lane::kTransfer};
  for (const BufferId id : lent) access(step, id, false);
  for (const Copy& c : copies) {
    access(step, c.src, false);
    access(step, c.dst, true);
  }
  step.copies = std::move(copies);
  step.readers = std::move(readers);
  push(std::move(step));
}

void Builder::attend(Step step) {
  std::erase_if(step.parts, [](const Part& p) { return p.tiles.empty(); });
  if (step.parts.empty()) return;
  const bool forward = step.kind == StepKind::kAttend;
  access(step, step.q, false);
  access(step, step.o, forward);
  access(step, step.lse, forward);
  access(step, step.max_logit, true);
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
    if (!regions_[i].laid_out) continue;
    begin[i] = end;
    end = align_up(end + regions_[i].size, static_cast<int64_t>(kWorkspaceAlignment));
  }
  for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
    schedule_.buffers[i].offset += begin[static_cast<size_t>(region_of_[i])];
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
