#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

int64_t dim_of(const Problem& problem, Quantity quantity) {
  switch (quantity) {
    case Quantity::kQ:
    case Quantity::kK:
    case Quantity::kDq:
    case Quantity::kDk: return problem.dim_qk;
    case Quantity::kV:
    case Quantity::kO:
    case Quantity::kDout:
    case Quantity::kDv: return problem.dim_v;
    case Quantity::kLse:
    case Quantity::kMaxLogit:
    case Quantity::kDelta: return 1;
  }
  return 0;
}

bool is_statistic(Quantity quantity) {
  return quantity == Quantity::kLse || quantity == Quantity::kMaxLogit ||
         quantity == Quantity::kDelta;
}

bool type_allowed(const Problem& problem, const Buffer& buffer) {
  if (is_statistic(buffer.quantity)) return buffer.dtype == accumulator(problem.dtype);
  if (buffer.dtype == problem.dtype) return true;
  const bool result = buffer.quantity == Quantity::kO || is_gradient(buffer.quantity);
  return result && buffer.space != Space::kOperand && buffer.dtype == accumulator(problem.dtype);
}

bool known_in(Direction direction, Quantity quantity) {
  if (direction == Direction::kBackward) return true;
  return quantity <= Quantity::kMaxLogit;  // q, k, v, o, lse, max_logit come first
}

Status check_shape(const Setting& setting, const Schedule& schedule, BufferId id) {
  const Buffer& buffer = buffer_of(schedule, id);
  const Problem& problem = setting.problem;
  const auto fail = [&](std::string_view what) { return defect(schedule, kNone, id, what); };
  if (!known_in(schedule.direction, buffer.quantity)) {
    return fail(
        fmt::format("{} has no place in {}", name(buffer.quantity), name(schedule.direction)));
  }
  if (buffer.rows < 0 || buffer.rows > kMaxTokens) {
    return fail(fmt::format("{} rows, at most {} are allowed", buffer.rows, kMaxTokens));
  }
  const int64_t dim = dim_of(problem, buffer.quantity);
  if (buffer.dim != dim) return fail(fmt::format("dim {}, expected {}", buffer.dim, dim));
  const int64_t heads = of_queries(buffer.quantity) ? problem.heads_q : problem.heads_kv;
  const int64_t end = buffer.head_begin + buffer.heads;
  if (buffer.head_begin < 0 || buffer.heads < 0 || end > heads) {
    return fail(fmt::format("heads [{}, {}) of {}", buffer.head_begin, end, heads));
  }
  if (!type_allowed(problem, buffer)) {
    return fail(fmt::format("{} in {}, problem in {}", name(buffer.quantity), name(buffer.dtype),
                            name(problem.dtype)));
  }
  if (buffer.space != Space::kWorkspace) return {};
  if (buffer.offset < 0 || buffer.offset % kMessageAlignment != 0) {
    return fail(fmt::format("offset {} is no multiple of {}", buffer.offset, kMessageAlignment));
  }
  if (buffer.offset + buffer.bytes() > schedule.workspace_bytes) {
    return fail(fmt::format("bytes [{}, {}) of a workspace of {}", buffer.offset,
                            buffer.offset + buffer.bytes(), schedule.workspace_bytes));
  }
  return {};
}

/// max_logit: one row, which stands for no token but is followed like one.
Status check_one_row(const Schedule& schedule, BufferId id) {
  const Buffer& buffer = buffer_of(schedule, id);
  const bool one = buffer.rows == 1 && buffer.runs.size() == 1 && buffer.runs[0].valid == 1;
  return one ? Status() : defect(schedule, kNone, id, "does not have one row");
}

Status check_runs(const Setting& setting, const Schedule& schedule, BufferId id) {
  const Buffer& buffer = buffer_of(schedule, id);
  if (buffer.quantity == Quantity::kMaxLogit) return check_one_row(schedule, id);
  const std::vector<Sequence>& sequences = setting.problem.lengths.sequences;
  const bool queries = of_queries(buffer.quantity);
  int64_t next_row = 0;
  for (const Run& run : buffer.runs) {
    const int64_t size = run.tokens.size();
    const bool placed = run.row >= next_row && run.row + size <= buffer.rows;
    const bool counted = run.valid >= 0 && run.valid <= size && run.tokens.stride >= 1;
    if (!placed || !counted) {
      return defect(schedule, kNone, id,
                    fmt::format("run at row {} of {} tokens, {} valid, does not fit {} rows",
                                run.row, size, run.valid, buffer.rows));
    }
    next_row = run.row + size;
    if (run.valid == 0) continue;
    const bool known = run.sequence >= 0 && static_cast<size_t>(run.sequence) < sequences.size();
    if (!known) {
      return defect(schedule, kNone, id, fmt::format("run of unknown sequence {}", run.sequence));
    }
    const Sequence& sequence = sequences[static_cast<size_t>(run.sequence)];
    const int64_t length = queries ? sequence.q_length : sequence.k_length;
    if (run.tokens.begin < 0 || run.tokens.at(run.valid - 1) >= length) {
      return defect(
          schedule, kNone, id,
          fmt::format("run of tokens [{}, {}] of sequence {}, which has {}", run.tokens.begin,
                      run.tokens.at(run.valid - 1), run.sequence, length));
    }
  }
  return {};
}

bool same_tokens(const Run& a, const Run& b) {
  return a.row == b.row && a.sequence == b.sequence && a.valid == b.valid &&
         a.tokens.begin == b.tokens.begin && (a.valid == 1 || a.tokens.stride == b.tokens.stride);
}

/// Whether both hold the same valid tokens at the same rows.
bool same_tokens(const std::vector<Run>& a, const std::vector<Run>& b) {
  size_t i = 0;
  size_t j = 0;
  while (true) {
    while (i < a.size() && a[i].valid == 0) ++i;
    while (j < b.size() && b[j].valid == 0) ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    if (!same_tokens(a[i++], b[j++])) return false;
  }
}

/// What a peer lends is its whole shard of keys or values.
Status check_lent(const Setting& setting, const Schedule& schedule, BufferId id) {
  const Buffer& buffer = buffer_of(schedule, id);
  if (buffer.space != Space::kPeer) return {};
  const bool peer =
      buffer.peer >= 0 && buffer.peer < schedule.ranks && buffer.peer != schedule.rank;
  if (!peer) return defect(schedule, kNone, id, fmt::format("is of no peer ({})", buffer.peer));
  if (buffer.quantity != Quantity::kK && buffer.quantity != Quantity::kV) {
    return defect(schedule, kNone, id, fmt::format("{} is not lent", name(buffer.quantity)));
  }
  const Shard& shard = setting.partition.k(buffer.peer);
  const bool whole = buffer.rows == shard.rows && buffer.heads == setting.problem.heads_kv;
  if (whole && same_tokens(buffer.runs, shard.runs)) return {};
  return defect(schedule, kNone, id, fmt::format("is not what rank {} lends", buffer.peer));
}

/// A tensor of the call is the rank's whole shard.
Status check_operand(const Setting& setting, const Schedule& schedule, BufferId id) {
  const Buffer& buffer = buffer_of(schedule, id);
  if (buffer.space != Space::kOperand) return {};
  if (buffer.quantity == Quantity::kMaxLogit) {
    if (setting.problem.max_logit && buffer.heads == setting.problem.heads_q) return {};
    return defect(schedule, kNone, id, "is not asked for, or not of all heads");
  }
  const bool queries = of_queries(buffer.quantity);
  const Shard& shard =
      queries ? setting.partition.q(schedule.rank) : setting.partition.k(schedule.rank);
  const int64_t heads = queries ? setting.problem.heads_q : setting.problem.heads_kv;
  if (buffer.rows != shard.rows || buffer.heads != heads) {
    return defect(schedule, kNone, id,
                  fmt::format("{} rows and {} heads, the shard has {} and {}", buffer.rows,
                              buffer.heads, shard.rows, heads));
  }
  if (!same_tokens(buffer.runs, shard.runs)) {
    return defect(schedule, kNone, id, "rows are not those of the shard");
  }
  return {};
}

/// Buffers are told apart by name, tensors of the call by quantity too.
Status check_unique(const Schedule& schedule) {
  std::vector<BufferId> ids(schedule.buffers.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<BufferId>(i);
  std::sort(ids.begin(), ids.end(), [&](BufferId a, BufferId b) {
    return buffer_of(schedule, a).name < buffer_of(schedule, b).name;
  });
  for (size_t i = 1; i < ids.size(); ++i) {
    if (buffer_of(schedule, ids[i]).name == buffer_of(schedule, ids[i - 1]).name) {
      return defect(schedule, kNone, ids[i], "two buffers of one name");
    }
  }
  uint32_t seen = 0;
  for (const BufferId id : ids) {
    const Buffer& buffer = buffer_of(schedule, id);
    if (buffer.space != Space::kOperand) continue;
    const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(buffer.quantity);
    if ((seen & bit) != 0) return defect(schedule, kNone, id, "two operands of one quantity");
    seen |= bit;
  }
  return {};
}

/// The tensors that the direction writes exist wherever they have rows.
Status check_outputs(const Setting& setting, const Schedule& schedule) {
  for (int q = 0; q <= static_cast<int>(Quantity::kDv); ++q) {
    const auto quantity = static_cast<Quantity>(q);
    if (!is_accumulated(schedule.direction, quantity)) continue;
    const Shard& shard = of_queries(quantity) ? setting.partition.q(schedule.rank)
                                              : setting.partition.k(schedule.rank);
    const bool present =
        std::any_of(schedule.buffers.begin(), schedule.buffers.end(), [&](const Buffer& buffer) {
          return buffer.space == Space::kOperand && buffer.quantity == quantity;
        });
    if (quantity == Quantity::kMaxLogit) {
      if (present == setting.problem.max_logit) continue;
      return defect(schedule, kNone, kNone, "max_logit is returned iff the problem asks for it");
    }
    if (shard.rows > 0 && !present) {
      return defect(schedule, kNone, kNone,
                    fmt::format("no operand {} although the rank owns {} of its rows",
                                name(quantity), shard.rows));
    }
  }
  return {};
}

}  // namespace

Status check_buffers(const Setting& setting, const Schedule& schedule) {
  const auto count = static_cast<BufferId>(schedule.buffers.size());
  for (BufferId id = 0; id < count; ++id) {
    LONGSPAN_CHECK_OK(check_shape(setting, schedule, id));
    LONGSPAN_CHECK_OK(check_runs(setting, schedule, id));
    LONGSPAN_CHECK_OK(check_operand(setting, schedule, id));
    LONGSPAN_CHECK_OK(check_lent(setting, schedule, id));
  }
  LONGSPAN_CHECK_OK(check_unique(schedule));
  return check_outputs(setting, schedule);
}

}  // namespace longspan::proof
