#include "strategies/group.h"

#include <algorithm>

namespace longspan {
namespace {

const Shard& shard_of(const Partition& partition, SideOf side, int rank) {
  return side == SideOf::kQuery ? partition.q(rank) : partition.k(rank);
}

/// Adds `interval` behind the last one, or to it where they join.
void join(std::vector<Interval>& intervals, Interval interval) {
  if (!intervals.empty()) {
    Interval& last = intervals.back();
    if (last.stride == 1 && interval.stride == 1 && last.end == interval.begin) {
      last.end = interval.end;
      return;
    }
  }
  intervals.push_back(interval);
}

/// Stripes 0 .. s-1 of stride s together are all tokens.
bool is_whole_comb(const std::vector<Interval>& sorted, int count) {
  return count > 1 && sorted.front().begin == 0 &&
         std::all_of(sorted.begin(), sorted.end(),
                     [&](const Interval& i) { return i.stride == count; });
}

std::vector<Interval> joined(std::vector<Interval> intervals, int count) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  if (is_whole_comb(intervals, count)) {
    int64_t tokens = 0;
    for (const Interval& interval : intervals) tokens += interval.size();
    return {{0, tokens, 1}};
  }
  std::vector<Interval> result;
  for (const Interval& interval : intervals) join(result, interval);
  return result;
}

void append(Rows& rows, int32_t sequence, Interval tokens) {
  rows.runs.push_back({rows.rows, sequence, tokens, tokens.size()});
  rows.rows += tokens.size();
}

/// Keys [first, first + count) of run `run` are needed.
struct Need {
  size_t run = 0;
  int64_t first = 0;
  int64_t count = 0;

  int64_t last() const { return first + count; }
};

/// Adds the tile of two runs. Returns the index of its first key in the run.
int64_t place(Meeting& meeting, const Problem& problem, const Tile& tile, const Run& q,
              const Run& k) {
  const int64_t q_first = (tile.q.begin - q.tokens.begin) / q.tokens.stride;
  const int64_t k_first = (tile.k.begin - k.tokens.begin) / k.tokens.stride;
  const Sequence& sequence = problem.lengths.sequences[static_cast<size_t>(tile.sequence)];
  meeting.tiles.push_back({tile, q.row + q_first, k.row + k_first, problem.shift(sequence)});
  return k_first;
}

/// Sorts needs and appends their union to the meeting.
void append_needed(Meeting& meeting, const Rows& k, std::vector<Need>& needs) {
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return a.run != b.run ? a.run < b.run : a.first < b.first;
  });
  for (size_t i = 0; i < needs.size();) {
    Need whole = needs[i++];
    while (i < needs.size() && needs[i].run == whole.run && needs[i].first <= whole.last()) {
      whole.count = std::max(whole.last(), needs[i++].last()) - whole.first;
    }
    const Run& run = k.runs[whole.run];
    append(meeting.needed, run.sequence, run.tokens.slice(whole.first, whole.last()));
    meeting.source.push_back(run.row + whole.first);
  }
}

}  // namespace

HeadShare head_share(const Problem& problem, int ways, int index) {
  const int64_t kv = problem.heads_kv;
  const int64_t group = problem.group();
  if (!shares_kv_heads(problem, ways)) {
    const int64_t begin = kv * index / ways;
    const int64_t end = kv * (index + 1) / ways;
    return {begin * group, end * group, begin, end};
  }
  // Member m serves key head floor(m kv / ways); members [from, to) serve the same one.
  const int64_t head = index * kv / ways;
  const int64_t from = (head * ways + kv - 1) / kv;
  const int64_t to = ((head + 1) * ways + kv - 1) / kv;
  const int64_t members = to - from;
  const int64_t begin = head * group + group * (index - from) / members;
  const int64_t end = head * group + group * (index - from + 1) / members;
  const int64_t kv_heads = end > begin ? 1 : 0;
  return {begin, end, head, head + kv_heads};
}

Rows valid_rows(const Shard& shard) {
  Rows rows;
  rows.rows = shard.rows;
  for (const Run& run : shard.runs) {
    if (run.valid > 0) {
      rows.runs.push_back({run.row, run.sequence, run.tokens.slice(0, run.valid), run.valid});
    }
  }
  return rows;
}

Rows compacted(const Rows& rows) {
  Rows result;
  for (const Run& run : rows.runs) append(result, run.sequence, run.tokens);
  return result;
}

Rows merged_rows(const Partition& partition, SideOf side, int first, int count) {
  std::vector<std::vector<Run>> members;
  for (int rank = first; rank < first + count; ++rank) {
    members.push_back(valid_rows(shard_of(partition, side, rank)).runs);
  }
  std::vector<size_t> at(members.size(), 0);
  Rows rows;
  while (true) {
    int32_t sequence = INT32_MAX;
    for (size_t m = 0; m < members.size(); ++m) {
      if (at[m] < members[m].size()) sequence = std::min(sequence, members[m][at[m]].sequence);
    }
    if (sequence == INT32_MAX) return rows;
    std::vector<Interval> intervals;
    for (size_t m = 0; m < members.size(); ++m) {
      for (; at[m] < members[m].size() && members[m][at[m]].sequence == sequence; ++at[m]) {
        intervals.push_back(members[m][at[m]].tokens);
      }
    }
    for (const Interval& interval : joined(std::move(intervals), count)) {
      append(rows, sequence, interval);
    }
  }
}

Place locate(const Rows& rows, const Run& part) {
  const auto after =
      std::upper_bound(rows.runs.begin(), rows.runs.end(), part, [](const Run& a, const Run& b) {
        return a.sequence != b.sequence ? a.sequence < b.sequence : a.tokens.begin < b.tokens.begin;
      });
  // Stripes interleave, so the run that begins last before the part need not be the one.
  for (auto run = after; run != rows.runs.begin();) {
    --run;
    if (run->sequence != part.sequence) break;
    const int64_t offset = part.tokens.begin - run->tokens.begin;
    if (offset % run->tokens.stride != 0) continue;
    const int64_t index = offset / run->tokens.stride;
    if (index >= run->tokens.size()) continue;
    const int64_t step = part.tokens.size() > 1 ? part.tokens.stride / run->tokens.stride : 1;
    return {run->row + index, step};
  }
  return {};
}

std::vector<SharedRows> shared_rows(const Rows& a, const Rows& b) {
  std::vector<SharedRows> shared;
  size_t from = 0;
  for (const Run& one : a.runs) {
    while (from < b.runs.size() && b.runs[from].sequence < one.sequence) ++from;
    for (size_t i = from; i < b.runs.size() && b.runs[i].sequence == one.sequence; ++i) {
      const Run& other = b.runs[i];
      const int64_t begin = std::max(one.tokens.begin, other.tokens.begin);
      const int64_t end = std::min(one.tokens.end, other.tokens.end);
      if (begin >= end) continue;
      shared.push_back({one.row + begin - one.tokens.begin, other.row + begin - other.tokens.begin,
                        end - begin});
    }
  }
  return shared;
}

Rows without(const Rows& rows, const Rows& others) {
  const std::vector<SharedRows> taken = shared_rows(rows, others);
  auto next = taken.begin();
  Rows left;
  left.rows = rows.rows;
  for (const Run& run : rows.runs) {
    int64_t at = 0;  // of the run's tokens
    const auto keep_until = [&](int64_t end) {
      if (at == end) return;
      left.runs.push_back({run.row + at, run.sequence, run.tokens.slice(at, end), end - at});
    };
    for (; next != taken.end() && next->a_row < run.row + run.valid; ++next) {
      keep_until(next->a_row - run.row);
      at = next->a_row - run.row + next->rows;
    }
    keep_until(run.valid);
  }
  return left;
}

Meeting meet(const Problem& problem, const Rows& q, const Rows& k) {
  Meeting meeting;
  std::vector<Need> needs;
  size_t from = 0;
  for (const Run& q_run : q.runs) {
    while (from < k.runs.size() && k.runs[from].sequence < q_run.sequence) ++from;
    const Range numbers = problem.mask_tiles(q_run.sequence, q_run.tokens);
    for (int64_t number = numbers.first; number < numbers.last; ++number) {
      const MaskTile mask = problem.mask_tile(q_run.sequence, number);
      const Interval queries = between(q_run.tokens, mask.q.begin, mask.q.end);
      if (queries.size() == 0) continue;
      for (size_t i = from; i < k.runs.size() && k.runs[i].sequence == q_run.sequence; ++i) {
        const Interval keys = between(k.runs[i].tokens, mask.k.begin, mask.k.end);
        const Tile tile = make_tile(q_run.sequence, mask.band, queries, keys);
        if (tile.q.size() == 0) continue;
        needs.push_back({i, place(meeting, problem, tile, q_run, k.runs[i]), tile.k.size()});
      }
    }
  }
  append_needed(meeting, k, needs);
  return meeting;
}

std::vector<PlacedTile> on_needed_rows(const Meeting& meeting) {
  std::vector<PlacedTile> tiles = meeting.tiles;
  for (PlacedTile& tile : tiles) {
    // Sources rise with the runs.
    const auto after = std::upper_bound(meeting.source.begin(), meeting.source.end(), tile.k_row);
    const auto run = static_cast<size_t>(after - meeting.source.begin()) - 1;
    tile.k_row = meeting.needed.runs[run].row + (tile.k_row - meeting.source[run]);
  }
  return tiles;
}

}  // namespace longspan
