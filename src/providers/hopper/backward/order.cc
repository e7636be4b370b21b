#include "providers/hopper/backward/order.h"

#include <algorithm>
#include <tuple>

#include "providers/rules.h"

namespace longspan::hopper {
namespace {

/// Key head of the launch whose dS an item reads.
int64_t key_head_of(const TileProblem& problem, const Chunk& chunk, const GradientItem& item) {
  if (item.gradient != Gradient::kDq) return item.head;
  return key_head(problem, chunk.heads.first + item.head) - chunk.key_heads.first;
}

/// Whether dV may come last: its longest sum is a third of what each of 100 multiprocessors has to
/// sum, at most.
bool values_last(const Lists& lists) {
  int64_t all = 0, longest = 0;
  for (const GradientItem& item : lists.gradients) {
    all += steps_of(item);
    if (item.gradient == Gradient::kDv) longest = std::max(longest, steps_of(item));
  }
  return longest * 3 * 100 <= all;
}

int32_t blocks_up(int32_t rows) { return std::max((rows + kBlockSide - 1) / kBlockSide, 1); }

/// The keys' end of what queries see crosses the region, the other one does not.
bool is_triangle(const Region& region) {
  return region.hi < region.keys - 1 && region.lo <= 1 - region.queries;
}

/// From the diagonal on: dQ downwards, dK upwards; or the same backwards, to it.
void set_blocks(const Region& region, bool backwards, GradientItem& item) {
  const bool queries = item.gradient == Gradient::kDq;
  const int32_t sides = kGradientRows / kBlockSide;
  const bool edge = region.hi < region.keys - 1;
  const int32_t shift = edge ? region.hi / kBlockSide : 0;
  const int32_t diagonal =
      queries ? item.tile * sides + sides - 1 + shift : item.tile * sides - shift;
  const int32_t count = std::max(item.last - item.first, 1);
  item.window = std::min(queries ? blocks_up(region.queries) : count, count);
  const int32_t start = (edge ? diagonal : diagonal % blocks_up(region.queries)) - item.first;
  item.start = std::clamp(start, 0, item.window - 1);
  item.up = !queries;
  if (!backwards) return;
  item.up = !item.up;
  item.start = (item.start + (item.up ? 1 : item.window - 1)) % item.window;
}

/// Where dV is summed elsewhere: the first of the last key heads whose sums come together, longest
/// first. There are as many as keep about 132 multiprocessors busy during the longest sum.
int64_t first_joined_head(const Chunk& chunk, const Lists& lists) {
  constexpr int64_t kMultiprocessors = 132;
  int64_t all = 0, longest = 0;
  for (const GradientItem& item : lists.gradients) {
    all += steps_of(item);
    longest = std::max(longest, steps_of(item));
  }
  const int64_t heads = chunk.key_heads.last - chunk.key_heads.first;
  const int64_t of_head = std::max<int64_t>(all / std::max<int64_t>(heads, 1), 1);
  return std::max<int64_t>(heads - (longest * kMultiprocessors + of_head - 1) / of_head, 0);
}

constexpr int32_t kLineBlocks = kUnitQueries / kBlockSide;

/// Lines of 128 queries that a sum of dV goes over, for each head.
Range lines_of(const GradientItem& item) {
  return {item.first / kLineBlocks, (item.last + kLineBlocks - 1) / kLineBlocks};
}
/// Those of all its heads.
int64_t lines_in(const GradientItem& item) {
  const Range lines = lines_of(item);
  return (lines.last - lines.first) * (item.last_head - item.first_head);
}

/// Part number `part` of `count`, the first ones longer.
Range part_of(Range all, int64_t part, int64_t count) {
  const int64_t each = (all.last - all.first) / count, more = (all.last - all.first) % count;
  const auto begin = [&](int64_t i) { return all.first + i * each + std::min(i, more); };
  return {begin(part), begin(part + 1)};
}

/// Appends the parts of a sum.
void append_parts(GradientItem item, int64_t parts, std::vector<GradientItem>& items) {
  const bool adds = item.adds, ends = item.ends;
  const Range heads{item.first_head, item.last_head}, blocks{item.first, item.last};
  const Range lines = lines_of(item);
  item.sum_parts = static_cast<int32_t>(parts);
  for (int64_t i = 0; i < parts; ++i) {
    if (heads.last - heads.first > 1) {
      const Range some = part_of(heads, i, parts);
      item.first_head = static_cast<int32_t>(some.first);
      item.last_head = static_cast<int32_t>(some.last);
    } else {
      const Range some = part_of(lines, i, parts);
      item.first = static_cast<int32_t>(std::max(some.first * kLineBlocks, blocks.first));
      item.last = static_cast<int32_t>(std::min(some.last * kLineBlocks, blocks.last));
    }
    item.sum_part = static_cast<int32_t>(i);
    item.adds = adds || i > 0;
    item.ends = ends && i + 1 == parts;
    items.push_back(item);
  }
}

/// Splits sums that take longer than a multiprocessor's share of all, of about 132, between heads
/// or between lines.
void split_values(std::vector<GradientItem>& items) {
  constexpr int64_t kMultiprocessors = 132, kLeastLines = 8;
  int64_t all = 0;
  for (const GradientItem& item : items) all += lines_in(item);
  const int64_t most = std::max(all / kMultiprocessors, kLeastLines);
  std::vector<GradientItem> whole;
  whole.swap(items);
  int32_t turns = 0;
  for (GradientItem& item : whole) {
    const int64_t heads = item.last_head - item.first_head, lines = lines_in(item);
    // A sum that is a little longer is left alone: a part costs a reading of its rows.
    const int64_t wanted = lines * 7 <= most * 8 ? 1 : (lines + most - 1) / most;
    const int64_t parts = std::min(wanted, heads > 1 ? heads : lines);
    if (parts > 1) item.turn = turns++;
    append_parts(item, std::max<int64_t>(parts, 1), items);
  }
}

}  // namespace

void order_gradients(const TileProblem& problem, const Chunk& chunk, Lists& lists) {
  const bool by_heads = !lists.values.empty() || values_last(lists);
  const int64_t joined = lists.values.empty() ? INT64_MAX : first_joined_head(chunk, lists);
  const auto place = [&](const GradientItem& item) {
    const bool last = by_heads && item.gradient == Gradient::kDv;
    const int64_t head = by_heads && !last ? key_head_of(problem, chunk, item) : 0;
    return std::tuple(last, std::min(head, joined), -steps_of(item));
  };
  std::ranges::stable_sort(lists.gradients, {}, place);
  for (GradientItem& item : lists.gradients) {
    const Region& region = lists.regions[static_cast<size_t>(item.region)];
    // Sums of a triangle begin together for every other head, and end together for the next one.
    const bool odd = by_heads && key_head_of(problem, chunk, item) % 2 == 1;
    set_blocks(region, odd && is_triangle(region), item);
  }
}

void order_values(const Chunk& chunk, Lists& lists) {
  if (chunk.cut) split_values(lists.values);
  // Stable: parts of a sum, none longer than the one before, stay in their order.
  std::ranges::stable_sort(lists.values, std::ranges::greater(), lines_in);
}

}  // namespace longspan::hopper
