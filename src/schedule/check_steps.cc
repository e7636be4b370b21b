#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

bool is_transfer_kind(StepKind kind) {
  return kind == StepKind::kSendRecv || kind == StepKind::kAllGather ||
         kind == StepKind::kReduceScatter || kind == StepKind::kAllToAll || kind == StepKind::kPull;
}

bool is_copy_kind(StepKind kind) {
  return kind == StepKind::kPack || kind == StepKind::kUnpack || kind == StepKind::kAccumulate ||
         kind == StepKind::kDelta || kind == StepKind::kMaximum || kind == StepKind::kLend ||
         kind == StepKind::kPull;
}

bool is_fill_kind(StepKind kind) {
  return kind == StepKind::kFill || kind == StepKind::kSink || kind == StepKind::kSinkGradient;
}

/// Checks one step of one schedule. Sides and dims of buffers are known to be right.
class StepCheck {
 public:
  StepCheck(const Setting& setting, const Schedule& schedule, StepId id)
      : setting_(setting), schedule_(schedule), id_(id), step_(step_of(schedule, id)) {}

  Status run() const {
    LONGSPAN_CHECK_OK(fields());
    LONGSPAN_CHECK_OK(edges());
    if (is_attend(step_.kind)) return attend();
    if (step_.kind == StepKind::kDelta) LONGSPAN_CHECK_OK(delta());
    for (const Copy& copy : step_.copies) LONGSPAN_CHECK_OK(check_copy(copy));
    if (step_.kind == StepKind::kFill) {
      for (const Fill& fill : step_.fills) LONGSPAN_CHECK_OK(check_fill(fill));
    }
    for (const Message& message : step_.messages)
      LONGSPAN_CHECK_OK(check_message(schedule_, id_, message));
    return {};
  }

 private:
  Error fail(std::string_view what, BufferId buffer = kNone) const {
    return defect(schedule_, id_, buffer, what);
  }
  const Buffer& at(BufferId id) const { return buffer_of(schedule_, id); }
  bool exists(BufferId id) const {
    return id >= 0 && static_cast<size_t>(id) < schedule_.buffers.size();
  }

  /// Every kind has its lane and one list of work, which is never empty.
  Status fields() const {
    const bool transfer = is_transfer_kind(step_.kind);
    if (transfer != (step_.lane == Lane::kTransfer)) {
      return fail(fmt::format("does not belong on the {} lane", name(step_.lane)));
    }
    const bool backward = schedule_.direction == Direction::kBackward;
    const bool pulls = step_.kind == StepKind::kPull;
    const bool forward_kind = step_.kind == StepKind::kAttend || step_.kind == StepKind::kSink ||
                              step_.kind == StepKind::kMaximum || pulls ||
                              step_.kind == StepKind::kLend;
    if (forward_kind && backward) return fail("forward work in backward");
    const bool backward_kind = step_.kind == StepKind::kAttendBackward ||
                               step_.kind == StepKind::kDelta ||
                               step_.kind == StepKind::kSinkGradient;
    if (backward_kind && !backward) return fail("backward work in forward");
    if (step_.queue < 0 || step_.queue >= kMostQueues) return fail("is on an unknown queue");
    if (step_.parts.empty() == is_attend(step_.kind)) return fail("parts belong to attend steps");
    if (step_.copies.empty() == is_copy_kind(step_.kind) && !(pulls && !step_.readers.empty())) {
      return fail("copies belong to copy steps");
    }
    if (step_.fills.empty() == is_fill_kind(step_.kind)) {
      return fail("fills belong to fill and sink steps");
    }
    if (step_.messages.empty() == (transfer && !pulls))
      return fail("messages belong to transfer steps");
    if (step_.kind == StepKind::kSendRecv && step_.messages.size() > 2) {
      return fail(fmt::format("{} messages", step_.messages.size()));
    }
    return {};
  }

  Status edges() const {
    for (const StepId earlier : step_.after) {
      if (earlier < 0 || earlier >= id_) {
        return fail(fmt::format("waits for step {}, which does not come earlier", earlier));
      }
    }
    for (const Part& part : step_.parts) {
      if (part.after == kNone) continue;
      const bool earlier = part.after >= 0 && part.after < id_;
      if (!earlier || !is_transfer(schedule_, part.after)) {
        return fail(
            fmt::format("a part waits for step {}, which is no earlier transfer", part.after));
      }
    }
    return {};
  }

  /// An argument of an attend step: quantity, type, and the heads of the tile problem.
  Status argument(BufferId id, Quantity quantity, DType dtype, int64_t head_begin) const {
    if (!exists(id)) return fail(fmt::format("has no {}", name(quantity)));
    const Buffer& buffer = at(id);
    if (buffer.quantity != quantity) {
      return fail(fmt::format("takes it as {}, it holds {}", name(quantity), name(buffer.quantity)),
                  id);
    }
    if (buffer.dtype != dtype) {
      return fail(fmt::format("is {}, must be {}", name(buffer.dtype), name(dtype)), id);
    }
    const TileProblem& tiles = schedule_.tiles;
    if (quantity == Quantity::kMaxLogit) {  // of all heads
      if (buffer.heads == setting_.problem.heads_q) return {};
      return fail(
          fmt::format("holds {} heads, the problem has {}", buffer.heads, setting_.problem.heads_q),
          id);
    }
    const int64_t heads = of_queries(quantity) ? tiles.heads_q : tiles.heads_kv;
    if (buffer.heads != heads || buffer.head_begin != head_begin) {
      return fail(fmt::format("holds heads [{}, {}), the tiles need [{}, {})", buffer.head_begin,
                              buffer.head_begin + buffer.heads, head_begin, head_begin + heads),
                  id);
    }
    const int64_t capacity = of_queries(quantity) ? tiles.capacity_q : tiles.capacity_k;
    if (buffer.rows > capacity) {
      return fail(fmt::format("has {} rows, the provider was asked for {}", buffer.rows, capacity),
                  id);
    }
    return {};
  }

  Status attend() const {
    if (!exists(step_.q)) return fail("has no q");
    const bool backward = step_.kind == StepKind::kAttendBackward;
    const DType dtype = setting_.problem.dtype;
    const DType sum = accumulator(dtype);
    const int64_t head = at(step_.q).head_begin;
    const DType result = schedule_.tiles.features.whole ? dtype : sum;
    LONGSPAN_CHECK_OK(tile_problem());
    LONGSPAN_CHECK_OK(argument(step_.q, Quantity::kQ, dtype, head));
    LONGSPAN_CHECK_OK(argument(step_.lse, Quantity::kLse, sum, head));
    if (backward) {
      LONGSPAN_CHECK_OK(argument(step_.dout, Quantity::kDout, dtype, head));
      const bool has_o = step_.o != kNone;
      if (has_o) LONGSPAN_CHECK_OK(argument(step_.o, Quantity::kO, dtype, head));
      if (step_.delta != kNone || !has_o || !schedule_.tiles.features.whole) {
        LONGSPAN_CHECK_OK(argument(step_.delta, Quantity::kDelta, sum, head));
      }
      LONGSPAN_CHECK_OK(argument(step_.dq, Quantity::kDq, result, head));
    } else {
      LONGSPAN_CHECK_OK(argument(step_.o, Quantity::kO, result, head));
      if (setting_.problem.max_logit) {
        LONGSPAN_CHECK_OK(argument(step_.max_logit, Quantity::kMaxLogit, sum, head));
      }
    }
    for (const Part& part : step_.parts) {
      if (part.tiles.empty()) return fail("a part has no tiles");
      if (!exists(part.k)) return fail("a part has no k");
      const int64_t key_head = at(part.k).head_begin;
      LONGSPAN_CHECK_OK(argument(part.k, Quantity::kK, dtype, key_head));
      LONGSPAN_CHECK_OK(argument(part.v, Quantity::kV, dtype, key_head));
      LONGSPAN_CHECK_OK(head_mapping(head, part.k));
      if (!backward) continue;
      LONGSPAN_CHECK_OK(argument(part.dk, Quantity::kDk, result, key_head));
      LONGSPAN_CHECK_OK(argument(part.dv, Quantity::kDv, result, key_head));
    }
    return {};
  }

  Status tile_problem() const {
    const TileProblem& tiles = schedule_.tiles;
    const Problem& problem = setting_.problem;
    if (tiles.direction != schedule_.direction) return fail("tile problem of another direction");
    if (tiles.dtype != problem.dtype) return fail("tile problem of another dtype");
    if (tiles.dim_qk != problem.dim_qk || tiles.dim_v != problem.dim_v) {
      return fail(fmt::format("tile problem of dims {} and {}, expected {} and {}", tiles.dim_qk,
                              tiles.dim_v, problem.dim_qk, problem.dim_v));
    }
    Features expected = features_of(problem, schedule_.direction);
    expected.whole = tiles.features.whole;
    if (!(tiles.features == expected)) return fail("tile problem lost a feature of the problem");
    if (tiles.features.whole && !setting_.whole) return fail("whole results are not allowed");
    if (tiles.heads_q < 1 || tiles.heads_kv < 1 || tiles.group < 1 || tiles.group_offset < 0) {
      return fail("tile problem without heads");
    }
    return {};
  }

  /// Query head i of the buffer reads the key head that the problem pairs it with.
  Status head_mapping(int64_t head, BufferId k) const {
    const TileProblem& tiles = schedule_.tiles;
    const int64_t group = setting_.problem.group();
    for (int64_t i = 0; i < tiles.heads_q; ++i) {
      const int64_t read = at(k).head_begin + (i + tiles.group_offset) / tiles.group;
      if (read == (head + i) / group && read < at(k).head_begin + tiles.heads_kv) continue;
      return fail(fmt::format("query head {} would read key head {} instead of {}", head + i, read,
                              (head + i) / group),
                  k);
    }
    return {};
  }

  Status delta() const {
    for (const BufferId id : {step_.o, step_.dout, step_.delta}) {
      if (!exists(id)) return fail("needs o, dout and delta");
    }
    const Buffer& o = at(step_.o);
    const Buffer& dout = at(step_.dout);
    const bool kinds = o.quantity == Quantity::kO && dout.quantity == Quantity::kDout &&
                       at(step_.delta).quantity == Quantity::kDelta;
    if (!kinds) return fail("takes buffers of other quantities");
    if (o.rows != dout.rows || o.heads != dout.heads || o.head_begin != dout.head_begin) {
      return fail("o and dout differ in rows or heads", step_.dout);
    }
    for (const Copy& copy : step_.copies) {
      if (copy.src != step_.o || copy.dst != step_.delta) return fail("copies between others");
    }
    return {};
  }

  Status check_copy(const Copy& copy) const {
    if (!exists(copy.src) || !exists(copy.dst)) return fail("copies between unknown buffers");
    LONGSPAN_CHECK_OK(inside(copy.src, copy.src_row, copy.src_step, copy.src_head, copy));
    LONGSPAN_CHECK_OK(inside(copy.dst, copy.dst_row, copy.dst_step, copy.dst_head, copy));
    const Buffer& src = at(copy.src);
    const Buffer& dst = at(copy.dst);
    if (src.head_begin + copy.src_head != dst.head_begin + copy.dst_head) {
      return fail(fmt::format("moves head {} of \"{}\" to head {}", src.head_begin + copy.src_head,
                              src.name, dst.head_begin + copy.dst_head),
                  copy.dst);
    }
    if (step_.kind == StepKind::kDelta) return {};
    if (src.quantity != dst.quantity) {
      return fail(fmt::format("moves {} to {}", name(src.quantity), name(dst.quantity)), copy.dst);
    }
    const DType sum = accumulator(setting_.problem.dtype);
    const bool sums = src.dtype == sum && dst.dtype == sum;
    if (step_.kind == StepKind::kMaximum && src.quantity != Quantity::kMaxLogit) {
      return fail(fmt::format("takes the maximum of {}", name(src.quantity)), copy.dst);
    }
    if (step_.kind == StepKind::kAccumulate && !(sums && is_gradient(src.quantity))) {
      return fail(
          fmt::format("adds {} in {} to {}", name(src.quantity), name(src.dtype), name(dst.dtype)),
          copy.dst);
    }
    // A rounded result must not become a summand again, but for whole gradients of gathered keys.
    const bool gathered = setting_.gathers_whole && schedule_.tiles.features.whole;
    if (src.dtype != dst.dtype && dst.dtype == sum && !(gathered && is_gradient(src.quantity))) {
      return fail(fmt::format("takes rounded {} as {}", name(src.dtype), name(sum)), copy.dst);
    }
    return {};
  }

  Status inside(BufferId id, int64_t row, int64_t row_step, int64_t head, const Copy& copy) const {
    const Buffer& buffer = at(id);
    const bool shape = copy.rows > 0 && copy.heads > 0 && row_step > 0;
    const bool heads = head >= 0 && copy.heads <= buffer.heads - head;
    const bool rows = row >= 0 && row < buffer.rows &&
                      copy.rows - 1 <= (buffer.rows - 1 - row) / std::max<int64_t>(row_step, 1);
    if (shape && heads && rows) return {};
    return fail(
        fmt::format("copies {} rows from row {} in steps of {} and heads [{}, {}) of {} "
                    "rows and {} heads",
                    copy.rows, row, row_step, head, head + copy.heads, buffer.rows, buffer.heads),
        id);
  }

  Status check_fill(const Fill& fill) const {
    if (!exists(fill.buffer)) return fail("fills an unknown buffer");
    const Buffer& buffer = at(fill.buffer);
    if (!is_accumulated(schedule_.direction, buffer.quantity)) {
      return fail(fmt::format("fills {}, which is no result", name(buffer.quantity)), fill.buffer);
    }
    const bool inside = fill.row >= 0 && fill.rows > 0 && fill.rows <= buffer.rows - fill.row;
    if (inside) return {};
    return fail(
        fmt::format("fills rows [{}, {}) of {}", fill.row, fill.row + fill.rows, buffer.rows),
        fill.buffer);
  }

  const Setting& setting_;
  const Schedule& schedule_;
  StepId id_;
  const Step& step_;
};

}  // namespace

Status check_steps(const Setting& setting, const Schedule& schedule) {
  const auto count = static_cast<StepId>(schedule.steps.size());
  for (StepId id = 0; id < count; ++id) {
    LONGSPAN_CHECK_OK(StepCheck(setting, schedule, id).run());
  }
  return check_sinks(setting, schedule);
}

}  // namespace longspan::proof
