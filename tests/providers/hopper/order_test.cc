// In which order gradients of a chunk are summed.
#include "providers/hopper/backward/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace longspan::hopper {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

TileProblem problem_of(int64_t heads, int64_t group, int64_t dim_v = 192) {
  TileProblem p{.direction = Direction::kBackward,
                .dtype = DType::kBF16,
                .heads_q = heads,
                .heads_kv = heads / group,
                .group = group,
                .dim_qk = 192,
                .dim_v = dim_v};
  p.features.whole = true;
  return p;
}

Lists lists_of(const TileProblem& p, int64_t nq, int64_t nk, Band band) {
  const Part part{.tile = {.tile = {.q = {0, nq, 1}, .k = {0, nk, 1}, .band = band}},
                  .q = {0, nq},
                  .k = {0, nk}};
  const Chunk chunk{.key_heads = {0, p.heads_kv}, .heads = {0, p.heads_q}};
  return make_lists(p, {part}, chunk, gradient_columns(p.dim_qk, p.dim_v));
}

/// Blocks of the other side, in the order in which an item sums them.
std::vector<int> blocks_of(const GradientItem& item) {
  std::vector<int> blocks;
  for (int begin = item.first; begin < item.last; begin += item.window) {
    const int end = std::min(begin + item.window, item.last);
    int i = std::min(begin + item.start, end - 1);
    for (int n = begin; n < end; ++n) {
      blocks.push_back(i);
      i += item.up ? 1 : -1;
      if (i >= end) i = begin;
      if (i < begin) i = end - 1;
    }
  }
  return blocks;
}

/// The largest difference between the steps in which dQ and dK of a head read a block of dS; both
/// begin together, or, `end_together`, end together.
int farthest_apart(const Lists& lists, int head, bool end_together) {
  std::map<std::pair<int, int>, std::vector<int>> steps;  // of pairs of 128 queries and 128 keys
  for (const GradientItem& item : lists.gradients) {
    if (item.gradient == Gradient::kDv || item.head != head) continue;
    const std::vector<int> blocks = blocks_of(item);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int step = static_cast<int>(end_together ? i + 1000 - blocks.size() : i);
      const bool queries = item.gradient == Gradient::kDq;
      const std::pair pair =
          queries ? std::pair(item.tile, blocks[i] / 2) : std::pair(blocks[i] / 2, item.tile);
      steps[pair].push_back(step);
    }
  }
  int farthest = 0;
  for (const auto& [pair, times] : steps) {
    const auto [least, most] = std::ranges::minmax(times);
    farthest = std::max(farthest, most - least);
  }
  return farthest;
}

TEST(HopperOrder, DqAndDkReadBlocksTogether) {
  const Lists full = lists_of(problem_of(20, 1), 4096, 4096, kFull);
  EXPECT_LE(farthest_apart(full, 0, false), 4);
  EXPECT_LE(farthest_apart(full, 1, false), 4);
  const Lists causal = lists_of(problem_of(20, 1), 4096, 4096, kCausal);
  EXPECT_LE(farthest_apart(causal, 0, false), 4);
  EXPECT_LE(farthest_apart(causal, 1, true), 4);
}

TEST(HopperOrder, ValuesComeLastHeadByHead) {
  const Lists lists = lists_of(problem_of(20, 1), 4096, 4096, kCausal);
  const auto is_value = [](const GradientItem& i) { return i.gradient == Gradient::kDv; };
  const auto values = std::ranges::find_if(lists.gradients, is_value);
  EXPECT_EQ(values - lists.gradients.begin(), 20 * 2 * 32);
  EXPECT_TRUE(std::all_of(values, lists.gradients.end(), is_value));
  EXPECT_TRUE(std::ranges::is_sorted(lists.gradients.begin(), values, {}, &GradientItem::head));
  EXPECT_TRUE(std::is_sorted(values, lists.gradients.end(), [](const auto& a, const auto& b) {
    return steps_of(a) > steps_of(b);
  }));
}

TEST(HopperOrder, LongSumsComeFirstWhereTheyAreFew) {
  for (const int64_t group : {1, 4}) {
    const Lists lists = lists_of(problem_of(4, group), 4096, 4096, kCausal);
    EXPECT_TRUE(std::ranges::is_sorted(lists.gradients, std::ranges::greater(), steps_of));
  }
}

/// The last heads are so many that their sums keep multiprocessors busy during the longest one.
TEST(HopperOrder, LastHeadsComeTogetherWhereDvIsSummedElsewhere) {
  const Lists lists = lists_of(problem_of(20, 1, 128), 4096, 4096, kCausal);
  EXPECT_EQ(lists.values.size(), 20u * 32);
  EXPECT_EQ(lists.gradients.size(), 20u * 2 * 32);
  // A head has 2112 steps, 132 multiprocessors 8448 while the longest of 64 lasts: four heads.
  const auto joined = lists.gradients.begin() + 16 * 2 * 32;
  EXPECT_TRUE(std::ranges::is_sorted(lists.gradients.begin(), joined, {}, &GradientItem::head));
  EXPECT_EQ((joined - 1)->head, 15);
  EXPECT_TRUE(
      std::ranges::is_sorted(joined, lists.gradients.end(), std::ranges::greater(), steps_of));
}

}  // namespace
}  // namespace longspan::hopper
