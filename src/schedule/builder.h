// Emits a schedule step by step: places buffers, and orders steps by what they read and write.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/schedule.h"

namespace longspan {

/// A part of the workspace that a strategy lays out itself. Its size is that of its largest fill.
using RegionId = int32_t;

/// `after` edges come from data: a step waits for every earlier transfer that touches the same
/// bytes (unless both only read), and for such compute steps of other queues; a transfer waits for
/// such compute steps too. Strategies therefore list steps in the order in which one thread would
/// run them and never name an edge.
class Builder {
 public:
  Builder(Direction direction, std::string_view strategy, int rank, int ranks);

  /// A tensor of the call or a buffer kept from forward to backward (space of `buffer`).
  BufferId add(Buffer buffer);

  RegionId region();
  /// Places a workspace buffer behind the last one of the region, padded to kMessageAlignment.
  BufferId place(RegionId region, Buffer buffer);
  /// The next place() starts at the region's front again: its buffers so far are done with.
  void rewind(RegionId region);

  /// The queue of the steps from here on.
  void on_queue(int queue) { queue_ = queue; }

  const Buffer& buffer(BufferId id) const { return schedule_.buffers[static_cast<size_t>(id)]; }

  /// A message of buffers that were placed one behind the other.
  static Message message(TransferKind kind, int peer, uint32_t tag, std::vector<BufferId> buffers);

  /// Each adds nothing when there is nothing to do. Part::after is filled in.
  void copy(StepKind kind, std::vector<Copy> copies);  // pack, unpack, accumulate
  void delta(BufferId o, BufferId dout, BufferId delta, std::vector<Copy> rows);
  void fill(std::vector<Fill> fills);
  void sink(BufferId o, BufferId lse, std::vector<Fill> rows);
  void sink_gradient(BufferId lse, BufferId delta, std::vector<Fill> rows);
  void transfer(StepKind kind, std::vector<Message> messages);
  /// `lent`: buffers that `readers` read; copies may read them, too.
  void pull(std::vector<Copy> copies, const std::vector<BufferId>& lent, std::vector<int> readers);
  void attend(Step step);

  /// Resolves offsets. `tiles` says what the attend steps ask of a provider.
  Schedule finish(TileProblem tiles) &&;

 private:
  /// Bytes with one history: who wrote them last, and who read them since.
  struct Segment {
    int64_t end = 0;
    StepId writer = kNone;
    std::vector<StepId> readers;
  };
  struct Region {
    bool laid_out = true;  // in the workspace; else the bytes of one buffer elsewhere
    int64_t size = 0;
    int64_t next = 0;
    std::map<int64_t, Segment> segments;  // by first byte; bytes never touched are in none
  };

  static void split(Region& region, int64_t at);
  void access(Step& step, BufferId buffer, bool write, StepId* arrival = nullptr);
  void add_edge(Step& step, StepId earlier, StepId* arrival);
  void push(Step step);
  StepId next_step() const { return static_cast<StepId>(schedule_.steps.size()); }

  Schedule schedule_;
  std::vector<Region> regions_;
  std::vector<RegionId> region_of_;  // of each buffer
  /// Per step and queue: a compute step of the queue waited for this transfer.
  std::vector<std::array<bool, kMostQueues>> waited_;
  /// Up to which step of the second queue the first has waited.
  std::array<std::array<StepId, kMostQueues>, kMostQueues> known_;
  int queue_ = 0;
};

}  // namespace longspan
