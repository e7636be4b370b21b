// Groups of tiles: every visible pair once, and nothing that cuDNN gets wrong.
#include "providers/cudnn/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/cut.h"
#include "providers/cudnn/tiles.h"

namespace longspan::cudnn {
namespace {

/// How often each pair of a query row and a key row is computed.
using Pairs = std::vector<std::vector<int>>;

Pairs wanted(const TileProblem& p, const std::vector<PlacedTile>& tiles) {
  Pairs pairs(static_cast<size_t>(p.capacity_q),
              std::vector<int>(static_cast<size_t>(p.capacity_k)));
  for (const PlacedTile& t : tiles) {
    for (int64_t i = 0; i < t.tile.q.size(); ++i) {
      for (int64_t j = 0; j < t.tile.k.size(); ++j) {
        if (!t.tile.band.sees(i, j)) continue;
        ++pairs[static_cast<size_t>(t.q_row + i)][static_cast<size_t>(t.k_row + j)];
      }
    }
  }
  return pairs;
}

bool keeps(const Mask& mask, const Entry& e, int64_t i, int64_t j) {
  const int64_t at = i + (mask.bottom_right ? e.nk - e.nq : 0);
  if (mask.left && j <= at - *mask.left) return false;
  return !mask.right || j <= at + *mask.right;
}

/// Adds the entry's pairs. Fails where a row sees no key or a key is not seen.
void add_pairs(const Mask& mask, const Entry& e, Pairs& pairs) {
  std::vector<bool> seen(static_cast<size_t>(e.nk));
  for (int64_t i = 0; i < e.nq; ++i) {
    bool sees = false;
    for (int64_t j = 0; j < e.nk; ++j) {
      if (!keeps(mask, e, i, j)) continue;
      ++pairs[static_cast<size_t>(e.q_row + i)][static_cast<size_t>(e.k_row + j)];
      sees = seen[static_cast<size_t>(j)] = true;
    }
    ASSERT_TRUE(sees) << "row " << i;
  }
  ASSERT_EQ(std::count(seen.begin(), seen.end(), false), 0);
}

void check_declared(const TileProblem& p, const Group& g) {
  const auto count = static_cast<int64_t>(g.entries.size());
  ASSERT_GE(g.batch, count);
  ASSERT_LE(g.batch, kMostEntries);
  for (const Entry& e : g.entries) {
    ASSERT_LE(e.nq, g.sq);
    ASSERT_LE(e.nk, g.skv);
    if (g.ragged) continue;
    ASSERT_EQ(e.nq, g.sq);
    ASSERT_EQ(e.nk, g.skv);
  }
  if (g.ragged) {
    ASSERT_TRUE(g.padded);
    ASSERT_LT(g.batch, 2 * count);
  } else {
    ASSERT_EQ(g.batch, count);
    ASSERT_EQ(g.total_q + g.total_k, 0);
  }
  if (g.total_q > 0) {
    ASSERT_GE(g.total_q, g.rows_q());
  }
  if (g.total_k > 0) {
    ASSERT_GE(g.total_k, g.rows_k());
  }
  ASSERT_LE(cudnn_bytes(p, g).total(), cudnn_budget(p));
  ASSERT_LE(g.rows_q(), p.capacity_q);
  ASSERT_LE(g.rows_k(), p.capacity_k);
}

void check_ascending(const Group& g) {
  for (size_t i = 1; i < g.entries.size(); ++i) {
    const Entry& before = g.entries[i - 1];
    ASSERT_GE(g.entries[i].q_row, before.q_row + before.nq);
    ASSERT_GE(g.entries[i].k_row, before.k_row + before.nk);
    if (g.ragged) continue;
    ASSERT_EQ(g.entries[i].q_row - before.q_row, g.entries[1].q_row - g.entries[0].q_row);
    ASSERT_EQ(g.entries[i].k_row - before.k_row, g.entries[1].k_row - g.entries[0].k_row);
  }
}

/// What cuDNN 9.19 refuses, or answers wrongly.
void check_accepted(const TileProblem& p, const Group& g) {
  if (g.mask.left) {
    ASSERT_GE(*g.mask.left, 1);
  }
  if (g.mask.right) {
    ASSERT_GE(*g.mask.right, 0);
  }
  if (g.mask.left && g.sq > g.skv) {
    ASSERT_TRUE(g.padded);
  }
  if (p.direction == Direction::kForward) return;
  ASSERT_FALSE(g.mask.bottom_right);
  if (!g.ragged) {
    ASSERT_FALSE(g.sq == 1 && g.skv == 1);
  }
  const bool unmasked = !g.mask.left && !g.mask.right;
  if (unmasked && (g.skv % 128 == 64 || g.sq == 1)) {
    ASSERT_TRUE(g.padded);
  }
  if (!bounds_totals(p) && g.ragged) {
    ASSERT_EQ(g.total_q, 0);
  }
}

void check(const TileProblem& p, const std::vector<PlacedTile>& tiles) {
  Pairs pairs(static_cast<size_t>(p.capacity_q),
              std::vector<int>(static_cast<size_t>(p.capacity_k)));
  for (const Group& g : make_groups(p, tiles)) {
    ASSERT_NO_FATAL_FAILURE(check_declared(p, g));
    ASSERT_NO_FATAL_FAILURE(check_ascending(g));
    ASSERT_NO_FATAL_FAILURE(check_accepted(p, g));
    for (const Entry& e : g.entries) ASSERT_NO_FATAL_FAILURE(add_pairs(g.mask, e, pairs));
  }
  ASSERT_EQ(pairs, wanted(p, tiles));
}

Band random_band(std::mt19937_64& random, int64_t nq, int64_t nk) {
  const int64_t a = pick(random, -nq - 2, nk + 2);
  const int64_t b = pick(random, -nq - 2, nk + 2);
  switch (pick(random, 0, 7)) {
    case 0: return {};
    case 1: return {-kUnbounded, 0};
    case 2: return {-kUnbounded, nk - nq};
    case 3: return {-kUnbounded, a};
    case 4: return {a, kUnbounded};
    case 5: return {a, a};
    case 6: return {-5, 0};
    default: return {std::min(a, b), std::max(a, b)};
  }
}

TEST(CudnnGroups, CoverRandomTilesOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000 && !HasFatalFailure(); ++round) {
    const int64_t rows_q = pick(random, 1, 90);
    const int64_t rows_k = pick(random, 1, 90);
    const auto direction = round % 2 == 0 ? Direction::kForward : Direction::kBackward;
    TileProblem p = problem(direction, rows_q, rows_k, pick(random, 0, 1) == 0 ? 64 : 72);
    if (pick(random, 0, 3) == 0) p.dim_qk = 192, p.dim_v = 128;
    p.features.deterministic = pick(random, 0, 3) == 0;
    std::vector<PlacedTile> tiles;
    for (int64_t i = pick(random, 0, 9); i > 0; --i) {
      const int64_t q = pick(random, 0, rows_q - 1);
      const int64_t k = pick(random, 0, rows_k - 1);
      const int64_t nq = pick(random, 0, std::min<int64_t>(30, rows_q - q));
      const int64_t nk = pick(random, 0, std::min<int64_t>(30, rows_k - k));
      tiles.push_back(placed(q, nq, k, nk, random_band(random, nq, nk)));
    }
    SCOPED_TRACE(round);
    check(p, tiles);
  }
}

/// How often each pair is computed once entries end at the lengths of a call.
void check_cut(const TileProblem& p, const std::vector<PlacedTile>& tiles,
               const std::vector<int64_t>& lengths_q, const std::vector<int64_t>& lengths_k) {
  Pairs pairs(static_cast<size_t>(p.capacity_q),
              std::vector<int>(static_cast<size_t>(p.capacity_k)));
  for (const Group& g : make_groups(p, tiles)) {
    ASSERT_TRUE(g.ragged && !g.mask.bottom_right);
    for (Entry e : g.entries) {
      const auto sequence = static_cast<size_t>(e.tokens.sequence);
      const EntryRows rows = cut({e.nq, e.nk}, e.tokens, lengths_q[sequence], lengths_k[sequence]);
      ASSERT_EQ(rows.nq == 0, rows.nk == 0);
      e.nq = rows.nq;
      e.nk = rows.nk;
      ASSERT_NO_FATAL_FAILURE(add_pairs(g.mask, e, pairs));
    }
  }
  std::vector<PlacedTile> there = tiles;
  for (PlacedTile& t : there) {
    const auto sequence = static_cast<size_t>(t.tile.sequence);
    t.tile.q = clip(t.tile.q, lengths_q[sequence]);
    t.tile.k = clip(t.tile.k, lengths_k[sequence]);
  }
  ASSERT_EQ(pairs, wanted(p, there));
}

TEST(CudnnGroups, CoverWhatIsThereOfRandomTilesOnce) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000 && !HasFatalFailure(); ++round) {
    const int64_t rows_q = pick(random, 1, 90);
    const int64_t rows_k = pick(random, 1, 90);
    const auto direction = round % 2 == 0 ? Direction::kForward : Direction::kBackward;
    TileProblem p = problem(direction, rows_q, rows_k, 64);
    p.features.device_lengths = true;
    std::vector<PlacedTile> tiles;
    std::vector<int64_t> lengths_q, lengths_k;
    for (int64_t i = pick(random, 0, 9); i > 0; --i) {
      const int64_t q = pick(random, 0, rows_q - 1);
      const int64_t k = pick(random, 0, rows_k - 1);
      const int64_t nq = pick(random, 0, std::min<int64_t>(30, rows_q - q));
      const int64_t nk = pick(random, 0, std::min<int64_t>(30, rows_k - k));
      tiles.push_back(placed(q, nq, k, nk, random_band(random, nq, nk)));
      tiles.back().tile.sequence = static_cast<int32_t>(lengths_q.size());
      lengths_q.push_back(pick(random, 0, tiles.back().tile.q.end + 3));
      lengths_k.push_back(pick(random, -2, tiles.back().tile.k.end + 3));
    }
    SCOPED_TRACE(round);
    check(p, tiles);
    check_cut(p, tiles, lengths_q, lengths_k);
  }
}

}  // namespace
}  // namespace longspan::cudnn
