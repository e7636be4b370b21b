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

}  // namespace

void order_gradients(const TileProblem& problem, const Chunk& chunk, Lists& lists) {
  const bool by_heads = values_last(lists);
  const auto place = [&](const GradientItem& item) {
    const bool last = by_heads && item.gradient == Gradient::kDv;
    const int64_t head = by_heads && !last ? key_head_of(problem, chunk, item) : 0;
    return std::tuple(last, head, -steps_of(item));
  };
  std::ranges::stable_sort(lists.gradients, {}, place);
  for (GradientItem& item : lists.gradients) {
    const Region& region = lists.regions[static_cast<size_t>(item.region)];
    // Sums of a triangle begin together for every other head, and end together for the next one.
    const bool odd = by_heads && key_head_of(problem, chunk, item) % 2 == 1;
    set_blocks(region, odd && is_triangle(region), item);
  }
}

}  // namespace longspan::hopper
