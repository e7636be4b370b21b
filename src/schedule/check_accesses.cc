#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"
#include "schedule/check_state.h"

namespace longspan::proof {
namespace {

/// Which buffer owns which bytes of the workspace. A buffer that takes bytes over does so after
/// every use of the one before, which is never used again.
class Sharing {
 public:
  Sharing(const Schedule& schedule, const Order& order)
      : schedule_(schedule), order_(order), uses_(schedule.buffers.size()) {
    if (schedule.workspace_bytes > 0) owners_.push_back({0, schedule.workspace_bytes, kNone});
  }

  Status use(BufferId id, StepId step, size_t parts) {
    const Buffer& buffer = buffer_of(schedule_, id);
    if (buffer.space != Space::kWorkspace || buffer.bytes() == 0) return {};
    Uses& uses = uses_[static_cast<size_t>(id)];
    if (!uses.begun) take_over(id);
    if (uses.successor != kNone) {
      return defect(schedule_, step, id,
                    fmt::format("used after \"{}\" took its bytes over",
                                buffer_of(schedule_, uses.successor).name));
    }
    for (const BufferId earlier : uses.predecessors) {
      LONGSPAN_CHECK_OK(all_done(id, earlier, step, parts));
    }
    if (!is_transfer(schedule_, step)) {
      uses.compute = step;
    } else if (uses.transfers.empty() || uses.transfers.back() != step) {
      uses.transfers.push_back(step);
    }
    return {};
  }

 private:
  struct Bytes {
    int64_t begin = 0;
    int64_t end = 0;
    BufferId owner = kNone;
  };
  struct Uses {
    bool begun = false;
    StepId compute = kNone;  // the last one
    std::vector<StepId> transfers;
    std::vector<BufferId> predecessors;
    BufferId successor = kNone;
  };

  void take_over(BufferId id) {
    const Buffer& buffer = buffer_of(schedule_, id);
    Uses& uses = uses_[static_cast<size_t>(id)];
    uses.begun = true;
    const int64_t begin = buffer.offset;
    const int64_t end = begin + buffer.bytes();
    const auto first = std::upper_bound(owners_.begin(), owners_.end(), begin,
                                        [](int64_t at, const Bytes& b) { return at < b.end; });
    auto last = first;
    std::vector<Bytes> replaced;
    for (; last != owners_.end() && last->begin < end; ++last) {
      if (last->owner != kNone) {
        uses_[static_cast<size_t>(last->owner)].successor = id;
        uses.predecessors.push_back(last->owner);
      }
      if (last->begin < begin) replaced.push_back({last->begin, begin, last->owner});
      if (last->end > end) replaced.push_back({end, last->end, last->owner});
    }
    replaced.push_back({begin, end, id});
    std::sort(replaced.begin(), replaced.end(),
              [](const Bytes& a, const Bytes& b) { return a.begin < b.begin; });
    const auto at = owners_.erase(first, last);
    owners_.insert(at, replaced.begin(), replaced.end());
  }

  Status all_done(BufferId id, BufferId earlier, StepId step, size_t parts) const {
    const Uses& uses = uses_[static_cast<size_t>(earlier)];
    const auto fail = [&](StepId other) {
      return defect(schedule_, step, id,
                    fmt::format("shares bytes with \"{}\" and does not wait for step {}, which "
                                "uses it",
                                buffer_of(schedule_, earlier).name, other));
    };
    if (uses.compute != kNone && !order_.before(uses.compute, step, parts)) {
      return fail(uses.compute);
    }
    for (const StepId transfer : uses.transfers) {
      if (!order_.before(transfer, step, parts)) return fail(transfer);
    }
    return {};
  }

  const Schedule& schedule_;
  const Order& order_;
  std::vector<Bytes> owners_;
  std::vector<Uses> uses_;
};

/// Walks the steps in list order, which is one of the orders that the edges allow; as no two
/// conflicting uses are left unordered, every other order gives the same results.
class Accesses {
 public:
  explicit Accesses(const Schedule& schedule)
      : schedule_(schedule), order_(schedule), sharing_(schedule, order_) {
    const auto count = static_cast<BufferId>(schedule.buffers.size());
    states_.reserve(schedule.buffers.size());
    for (BufferId id = 0; id < count; ++id) states_.emplace_back(schedule, order_, id);
    expect();
    for (RowStates& states : states_) states.open();
  }

  Status run() {
    const auto count = static_cast<StepId>(schedule_.steps.size());
    for (step_ = 0; step_ < count; ++step_) {
      reads_.clear();
      writes_.clear();
      const Step& step = step_of(schedule_, step_);
      gather(step);
      for (const Touch& touch : reads_) LONGSPAN_CHECK_OK(apply(touch));
      if (step.kind == StepKind::kAttend) LONGSPAN_CHECK_OK(carried_together(step));
      for (const Touch& touch : writes_) LONGSPAN_CHECK_OK(apply(touch));
    }
    for (const RowStates& states : states_) LONGSPAN_CHECK_OK(states.finish());
    return {};
  }

 private:
  RowStates& states(BufferId id) { return states_[static_cast<size_t>(id)]; }

  void expect() {
    for (const Step& step : schedule_.steps) {
      for (const Copy& copy : step.copies) {
        states(copy.src).expect_heads(copy.src_head, copy.src_head + copy.heads);
        states(copy.dst).expect_heads(copy.dst_head, copy.dst_head + copy.heads);
        states(copy.src).expect_step(copy.src_step);
        states(copy.dst).expect_step(copy.dst_step);
      }
    }
    for (const Step& step : schedule_.steps) {
      if (step.kind != StepKind::kAttend) continue;
      states(step.o).expect_like(states(step.lse));
      states(step.lse).expect_like(states(step.o));
    }
  }

  void gather(const Step& step) {
    if (is_attend(step.kind)) return gather_attend(step);
    if (step.kind == StepKind::kSink || step.kind == StepKind::kSinkGradient) {
      return gather_sink(step);
    }
    const bool updates = step.kind == StepKind::kAccumulate || step.kind == StepKind::kMaximum;
    const Access access = updates ? Access::kUpdate : Access::kWrite;
    for (const Copy& copy : step.copies) {
      const Strip src{copy.src_row, copy.src_step, copy.rows};
      add(reads_, copy.src, Access::kRead, copy.src_head, copy.heads, src);
      if (step.kind == StepKind::kDelta) {
        add(reads_, step.dout, Access::kRead, copy.src_head, copy.heads, src);
      }
      add(writes_, copy.dst, access, copy.dst_head, copy.heads,
          {copy.dst_row, copy.dst_step, copy.rows});
    }
    for (const Fill& fill : step.fills) {
      add(writes_, fill.buffer, Access::kFill, 0, buffer_of(schedule_, fill.buffer).heads,
          {fill.row, 1, fill.rows});
    }
    for (const Message& message : step.messages) gather_message(message);
  }

  void gather_sink(const Step& step) {
    std::vector<Strip> rows;
    for (const Fill& fill : step.fills) rows.push_back({fill.row, 1, fill.rows});
    if (step.kind == StepKind::kSink) {
      whole(writes_, step.o, Access::kUpdate, 0, rows);
      whole(writes_, step.lse, Access::kUpdate, 0, rows);
    } else {
      whole(reads_, step.lse, Access::kRead, 0, rows);
      whole(reads_, step.delta, Access::kRead, 0, rows);
    }
  }

  void gather_message(const Message& message) {
    const bool send = message.kind == TransferKind::kSend;
    for (const BufferId id : message.buffers) {
      Touch touch{.buffer = id,
                  .step = step_,
                  .access = send ? Access::kRead : Access::kWrite,
                  .heads = buffer_of(schedule_, id).heads,
                  .strips = {}};
      for (const Run& run : buffer_of(schedule_, id).runs) {
        if (run.valid > 0) touch.strips.push_back({run.row, 1, run.valid});
      }
      (send ? reads_ : writes_).push_back(std::move(touch));
    }
  }

  void gather_attend(const Step& step) {
    const bool backward = step.kind == StepKind::kAttendBackward;
    const Access result = schedule_.tiles.features.whole ? Access::kWrite : Access::kUpdate;
    std::vector<Strip> queries;
    for (size_t i = 0; i < step.parts.size(); ++i) {
      const Part& part = step.parts[i];
      std::vector<Strip> keys;
      keys.reserve(part.tiles.size());
      for (const PlacedTile& placed : part.tiles) {
        queries.push_back({placed.q_row, 1, placed.tile.q.size()});
        keys.push_back({placed.k_row, 1, placed.tile.k.size()});
      }
      for (const BufferId id : {part.k, part.v}) whole(reads_, id, Access::kRead, i + 1, keys);
      if (!backward) continue;
      for (const BufferId id : {part.dk, part.dv}) whole(writes_, id, result, i + 1, keys);
    }
    whole(reads_, step.q, Access::kRead, 0, queries);
    if (!backward) {
      whole(writes_, step.o, result, 0, queries);
      whole(writes_, step.lse, result, 0, queries);
      if (step.max_logit != kNone) {
        const Buffer& q = buffer_of(schedule_, step.q);
        whole(writes_, step.max_logit, Access::kUpdate, 0, {{0, 1, 1}});
        writes_.back().head = q.head_begin;
        writes_.back().heads = q.heads;
      }
      return;
    }
    for (const BufferId id : {step.dout, step.lse, step.delta, step.o}) {
      if (id != kNone) whole(reads_, id, Access::kRead, 0, queries);
    }
    whole(writes_, step.dq, result, 0, queries);
  }

  void whole(std::vector<Touch>& touches, BufferId id, Access access, size_t parts,
             const std::vector<Strip>& strips) {
    touches.push_back({.buffer = id,
                       .step = step_,
                       .parts = parts,
                       .access = access,
                       .heads = buffer_of(schedule_, id).heads,
                       .strips = strips});
  }

  /// Joins the touch with one of the last ones where only the rows differ.
  void add(std::vector<Touch>& touches, BufferId id, Access access, int64_t head, int64_t heads,
           Strip strip) {
    if (access == Access::kRead && states(id).input()) return;
    constexpr size_t kLookBack = 8;
    const size_t last = touches.size() > kLookBack ? touches.size() - kLookBack : 0;
    for (size_t i = touches.size(); i > last; --i) {
      Touch& touch = touches[i - 1];
      if (touch.buffer != id || touch.head != head || touch.heads != heads) continue;
      Strip& end = touch.strips.back();
      if (strip.step == 1 && end.step == 1 && end.row + end.rows == strip.row) {
        end.rows += strip.rows;
      } else {
        touch.strips.push_back(strip);
      }
      return;
    }
    touches.push_back({.buffer = id,
                       .step = step_,
                       .access = access,
                       .head = head,
                       .heads = heads,
                       .strips = {strip}});
  }

  /// O and LSE of a row have seen the same keys.
  Status carried_together(const Step& step) {
    const auto touch = std::find_if(writes_.begin(), writes_.end(),
                                    [&](const Touch& t) { return t.buffer == step.o; });
    if (states(step.o).agrees(states(step.lse), *touch)) return {};
    return defect(schedule_, step_, step.lse, "o and lse have not seen the same keys");
  }

  Status apply(const Touch& touch) {
    LONGSPAN_CHECK_OK(sharing_.use(touch.buffer, touch.step, touch.parts));
    return states(touch.buffer).touch(touch);
  }

  const Schedule& schedule_;
  const Order order_;
  Sharing sharing_;
  std::vector<RowStates> states_;
  std::vector<Touch> reads_;
  std::vector<Touch> writes_;
  StepId step_ = 0;
};

}  // namespace

Status check_accesses(const Schedule& schedule) { return Accesses(schedule).run(); }

}  // namespace longspan::proof
