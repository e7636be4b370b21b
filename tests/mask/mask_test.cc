// Band and tile algebra against matrices of booleans, over more than a million random cases.
#include "longspan/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

namespace longspan {

// Found by GoogleTest when a comparison fails.
void PrintTo(const Tile& tile, std::ostream* out) {
  *out << "tile q [" << tile.q.begin << ", " << tile.q.end << ") / " << tile.q.stride << " k ["
       << tile.k.begin << ", " << tile.k.end << ") / " << tile.k.stride << " band [" << tile.band.lo
       << ", " << tile.band.hi << "]";
}

namespace {

using Random = std::mt19937_64;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

int64_t draw(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

/// Bounded, half bounded and unbounded bands around an offset; now and then an empty one.
Band random_band(Random& random, int64_t centre, int64_t spread) {
  Band band{centre + draw(random, -spread, spread), centre + draw(random, -spread, spread)};
  if (band.lo > band.hi && draw(random, 0, 7) != 0) std::swap(band.lo, band.hi);
  constexpr int64_t kLow[] = {-kUnbounded, kLowest, -kUnbounded - 7};
  constexpr int64_t kHigh[] = {kUnbounded, kHighest, kUnbounded + 7};
  if (draw(random, 0, 3) == 0) band.lo = kLow[draw(random, 0, 2)];
  if (draw(random, 0, 3) == 0) band.hi = kHigh[draw(random, 0, 2)];
  return band;
}

/// What a rectangle of a local band looks like, found by looking at every pair.
struct Picture {
  int64_t pairs = 0;
  int64_t q_first = -1, q_last = -1;
  int64_t k_first = -1, k_last = -1;
};

Picture look(Band band, int64_t nq, int64_t nk) {
  Picture picture;
  picture.k_first = nk;
  for (int64_t q = 0; q < nq; ++q) {
    for (int64_t k = 0; k < nk; ++k) {
      if (!band.sees(q, k)) continue;
      ++picture.pairs;
      if (picture.q_first < 0) picture.q_first = q;
      picture.q_last = q;
      picture.k_first = std::min(picture.k_first, k);
      picture.k_last = std::max(picture.k_last, k);
    }
  }
  return picture;
}

Range keys_of_row(Band band, int64_t q, int64_t nk) {
  Range range;
  for (int64_t k = 0; k < nk; ++k) {
    if (!band.sees(q, k)) continue;
    if (range.last == 0) range.first = k;
    range.last = k + 1;
  }
  return range;
}

TEST(Band, EmptyFullAreaAndVisibleKeysMatchEveryPair) {
  Random random(1);
  for (int i = 0; i < 500'000; ++i) {
    const int64_t nq = draw(random, 0, 8);
    const int64_t nk = draw(random, 0, 8);
    const Band band = random_band(random, 0, 10);
    const Picture picture = look(band, nq, nk);
    ASSERT_EQ(empty(band, nq, nk), picture.pairs == 0) << nq << " x " << nk << " " << i;
    ASSERT_EQ(full(band, nq, nk), nq * nk > 0 && picture.pairs == nq * nk) << nq << " x " << nk;
    ASSERT_EQ(area(band, nq, nk), picture.pairs)
        << nq << " x " << nk << " band " << band.lo << ".." << band.hi;
    for (int64_t q = 0; q < nq; ++q) {
      const Range expected = keys_of_row(band, q, nk);
      const Range range = visible_keys(band, q, nk);
      ASSERT_EQ(range.last - range.first, expected.last - expected.first);
      if (expected.last > 0) {
        ASSERT_EQ(range, expected);
      }
    }
  }
}

TEST(Tile, TrimKeepsExactlyTheSmallestRectangleOfVisiblePairs) {
  Random random(2);
  for (int i = 0; i < 300'000; ++i) {
    const int64_t stride = draw(random, 1, 3);
    const int64_t nq = draw(random, 0, 8);
    const int64_t nk = draw(random, 0, 8);
    const int64_t q = draw(random, 0, 40);
    const int64_t k = draw(random, 0, 40);
    const Tile tile{
        3, {q, q + nq * stride, stride}, {k, k + nk * stride, stride}, random_band(random, 0, 10)};
    const Picture picture = look(tile.band, nq, nk);
    const Tile trimmed = trim(tile);
    ASSERT_EQ(trimmed.sequence, 3);
    if (picture.pairs == 0) {
      ASSERT_EQ(trimmed.q.size() + trimmed.k.size(), 0) << testing::PrintToString(tile);
      continue;
    }
    ASSERT_EQ(trimmed.q, tile.q.slice(picture.q_first, picture.q_last + 1));
    ASSERT_EQ(trimmed.k, tile.k.slice(picture.k_first, picture.k_last + 1));
    for (int64_t row = 0; row < trimmed.q.size(); ++row) {
      for (int64_t column = 0; column < trimmed.k.size(); ++column) {
        ASSERT_EQ(trimmed.band.sees(row, column),
                  tile.band.sees(picture.q_first + row, picture.k_first + column))
            << testing::PrintToString(tile) << " at " << row << ", " << column;
      }
    }
    ASSERT_EQ(area(trimmed), picture.pairs);
    ASSERT_EQ(trim(trimmed), trimmed);
  }
}

/// Two intervals as partitions make them: of equal strides, or one of at most one token, whose own
/// stride then means nothing.
std::pair<Interval, Interval> random_intervals(Random& random) {
  const auto interval = [&](int64_t size, int64_t stride) {
    const int64_t begin = draw(random, 0, 30);
    return Interval{begin, begin + size * stride, stride};
  };
  const int64_t stride = draw(random, 1, 5);
  switch (draw(random, 0, 3)) {
    case 0:
      return {interval(draw(random, 0, 1), draw(random, 1, 5)),
              interval(draw(random, 0, 7), stride)};
    case 1:
      return {interval(draw(random, 0, 7), stride),
              interval(draw(random, 0, 1), draw(random, 1, 5))};
    default: return {interval(draw(random, 0, 7), stride), interval(draw(random, 0, 7), stride)};
  }
}

TEST(Tile, CutTranslatesAndMakeTileTrims) {
  Random random(3);
  for (int i = 0; i < 400'000; ++i) {
    const auto [q, k] = random_intervals(random);
    const Band band = random_band(random, draw(random, -25, 25), 12);
    const Band local = cut(band, q, k);
    const Tile tile = make_tile(7, band, q, k);
    int64_t pairs = 0;
    for (int64_t row = 0; row < q.size(); ++row) {
      for (int64_t column = 0; column < k.size(); ++column) {
        const bool sees = band.sees(q.at(row), k.at(column));
        ASSERT_EQ(local.sees(row, column), sees)
            << testing::PrintToString(Tile{7, q, k, band}) << " at " << row << ", " << column;
        pairs += sees ? 1 : 0;
      }
    }
    ASSERT_EQ(area(tile), pairs) << testing::PrintToString(Tile{7, q, k, band});
    ASSERT_EQ(tile, trim({7, q, k, local}));
  }
}

TEST(Tile, CuttingTwiceIsCuttingOnce) {
  Random random(4);
  for (int i = 0; i < 100'000; ++i) {
    const Interval q{draw(random, 0, 50), 0, 1};
    const Interval k{draw(random, 0, 50), 0, 1};
    const Interval whole_q{q.begin, q.begin + 20, 1};
    const Interval whole_k{k.begin, k.begin + 20, 1};
    const int64_t a = draw(random, 0, 10);
    const int64_t b = draw(random, 0, 10);
    const int64_t stride = draw(random, 1, 2);
    const Interval inner_q{a, a + 5 * stride, stride};
    const Interval inner_k{b, b + 5 * stride, stride};
    const Band band = random_band(random, 0, 60);
    const Interval both_q{whole_q.at(a), whole_q.at(a) + 5 * stride, stride};
    const Interval both_k{whole_k.at(b), whole_k.at(b) + 5 * stride, stride};
    ASSERT_EQ(cut(cut(band, whole_q, whole_k), inner_q, inner_k), cut(band, both_q, both_k));
  }
}

TEST(Band, UnboundedEdgesStayUnbounded) {
  const Interval far{(int64_t{1} << 31) - 5, int64_t{1} << 31, 1};
  const Interval near{0, 5, 1};
  for (const int64_t low : {-kUnbounded, kLowest}) {
    for (const int64_t high : {kUnbounded, kHighest}) {
      const Band band{low, high};
      EXPECT_EQ(cut(band, far, near), Band{});
      EXPECT_EQ(cut(band, near, far), Band{});
      EXPECT_TRUE(full(band, 5, 5));
      EXPECT_EQ(area(band, 5, 7), 35);
      EXPECT_EQ(visible_keys(band, 3, 9), (Range{0, 9}));
      EXPECT_EQ(trim({0, far, near, band}), (Tile{0, far, near, {}}));
    }
  }
  // Bands beyond every key or before every query see nothing.
  for (const Band band : {Band{kHighest, kHighest}, Band{kLowest, kLowest}, Band{5, 4}}) {
    EXPECT_TRUE(empty(band, 9, 9));
    EXPECT_EQ(area(band, 9, 9), 0);
    EXPECT_EQ(make_tile(0, band, far, near).q.size(), 0);
    EXPECT_EQ(visible_keys(band, 0, 9).first, visible_keys(band, 0, 9).last);
  }
}

/// Sum of 1 .. n.
__int128 triangle(__int128 n) { return n > 0 ? n * (n + 1) / 2 : 0; }

/// Pairs with k - q <= x: a difference of triangles over the rows, without any cases.
__int128 pairs_up_to(__int128 x, __int128 nq, __int128 nk) {
  return triangle(nq + x) - triangle(x) - triangle(nq + x - nk) + triangle(x - nk);
}

TEST(Band, AreasOfLongSequencesAreExact) {
  Random random(5);
  constexpr int64_t kLong = int64_t{1} << 31;
  for (int i = 0; i < 100'000; ++i) {
    const int64_t nq =
        kLong - (draw(random, 0, 1) ? draw(random, 0, 9) : draw(random, 0, kLong - 1));
    const int64_t nk =
        kLong - (draw(random, 0, 1) ? draw(random, 0, 9) : draw(random, 0, kLong - 1));
    Band band{draw(random, -kLong - 9, kLong + 9), draw(random, -kLong - 9, kLong + 9)};
    if (band.lo > band.hi) std::swap(band.lo, band.hi);
    if (draw(random, 0, 2) == 0) band.lo = -kUnbounded;
    if (draw(random, 0, 2) == 0) band.hi = kUnbounded;
    const __int128 expected = pairs_up_to(std::min(band.hi, nk), nq, nk) -
                              pairs_up_to(std::max(band.lo, -nq - 1) - 1, nq, nk);
    ASSERT_EQ(area(band, nq, nk), static_cast<int64_t>(expected))
        << nq << " x " << nk << " band " << band.lo << ".." << band.hi;
  }
  EXPECT_EQ(area({}, kLong, kLong), int64_t{1} << 62);
  EXPECT_EQ(area({-kUnbounded, 0}, kLong, kLong), (int64_t{1} << 61) + (int64_t{1} << 30));
}

TEST(Tile, EdgesOfLongTilesAreTight) {
  Random random(6);
  constexpr int64_t kLong = int64_t{1} << 31;
  for (int i = 0; i < 100'000; ++i) {
    const int64_t stride = draw(random, 1, 9);
    const auto interval = [&] {
      const int64_t begin = draw(random, 0, kLong - 1);
      const int64_t size = draw(random, 0, (kLong - begin) / stride);
      return Interval{begin, begin + size * stride, stride};
    };
    const Interval q = interval();
    const Interval k = interval();
    const Band band{-kUnbounded, draw(random, -kLong, kLong)};
    const Tile tile = make_tile(0, band, q, k);
    if (tile.q.size() == 0) {
      // The pair most likely to see each other: the last query and the first key.
      if (q.size() > 0 && k.size() > 0) {
        ASSERT_FALSE(band.sees(q.at(q.size() - 1), k.begin));
      }
      continue;
    }
    ASSERT_TRUE(band.sees(tile.q.begin, tile.k.begin));
    ASSERT_EQ(tile.k.begin, k.begin);
    if (tile.q.begin > q.begin) {
      ASSERT_FALSE(band.sees(tile.q.begin - stride, k.begin));
    }
    ASSERT_EQ(tile.q.end, q.end);
    const int64_t last_query = q.at(q.size() - 1);
    ASSERT_TRUE(band.sees(last_query, tile.k.at(tile.k.size() - 1)));
    if (tile.k.end < k.end) {
      ASSERT_FALSE(band.sees(last_query, tile.k.end));
    }
    // One row, looked at from both ends of what it sees.
    const int64_t row = draw(random, 0, tile.q.size() - 1);
    const Range keys = visible_keys(tile.band, row, tile.k.size());
    ASSERT_LT(keys.first, keys.last);
    ASSERT_TRUE(band.sees(tile.q.at(row), tile.k.at(keys.last - 1)));
    if (keys.last < tile.k.size()) {
      ASSERT_FALSE(band.sees(tile.q.at(row), tile.k.at(keys.last)));
    }
  }
}

TEST(Interval, ClipKeepsTheTokensBelowTheLimit) {
  for (int64_t stride = 1; stride <= 4; ++stride) {
    for (int64_t size = 0; size <= 5; ++size) {
      for (int64_t limit = -2; limit <= 30; ++limit) {
        const Interval interval{3, 3 + size * stride, stride};
        const Interval clipped = clip(interval, limit);
        int64_t below = 0;
        for (int64_t i = 0; i < size; ++i) below += interval.at(i) < limit ? 1 : 0;
        ASSERT_EQ(clipped.size(), below);
        ASSERT_EQ(clipped, interval.slice(0, below)) << "the canonical form";
      }
    }
  }
}

}  // namespace
}  // namespace longspan
