#include "providers/hopper/backward/chunks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "providers/hopper/backward/layout.h"
#include "providers/rules.h"

namespace longspan::hopper {
namespace {

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows that have been taken, as disjoint ranges.
class RowSet {
 public:
  bool meets(Range rows) const {
    if (rows.first >= rows.last) return false;
    const auto next = ranges_.lower_bound(rows.first);
    if (next != ranges_.end() && next->first < rows.last) return true;
    return next != ranges_.begin() && std::prev(next)->second > rows.first;
  }
  void add(Range rows) {
    if (rows.first < rows.last) ranges_[rows.first] = rows.last;
  }

 private:
  std::map<int64_t, int64_t> ranges_;
};

Part whole_part(const PlacedTile& t) {
  return {.tile = t, .q = {0, t.tile.q.size()}, .k = {0, t.tile.k.size()}};
}

/// Ranges of at most `size` that cover `all`, about alike; one even where it is empty.
std::vector<Range> ranges_of(Range all, int64_t size) {
  const int64_t count = std::max<int64_t>(quotient_up(all.last - all.first, size), 1);
  const int64_t each = quotient_up(all.last - all.first, count);
  std::vector<Range> ranges;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = std::min(all.first + i * each, all.last);
    ranges.push_back({first, std::min(first + each, all.last)});
  }
  return ranges;
}

/// Rows of each of as few pieces as have at most `most` units of `unit` rows each.
int64_t even_step(int64_t rows, int64_t unit, int64_t most) {
  const int64_t units = quotient_up(rows, unit);
  return quotient_up(units, quotient_up(units, most)) * unit;
}

class Cutter {
 public:
  Cutter(const TileProblem& problem, int64_t units)
      : problem_(problem),
        units_(units),
        group_(group_heads(problem)),
        grid_(grid_of(units, group_)) {}

  void add(const PlacedTile& tile) {
    const Part part = whole_part(tile);
    if (part.q.last == 0 && part.k.last == 0) return;
    const int64_t units = units_of(part);
    if (units == 0 && !problem_.features.whole) return;
    const ReadRows reads = read_rows(part);
    if (units * group_ > units_ || row_heads(reads) > kMostRowHeads) {
      close();
      cut(part);
      return;
    }
    const Range q = rows(tile.q_row, part.q), k = rows(tile.k_row, part.k);
    const bool fits = (open_units_ + units) * group_ <= units_ &&
                      row_heads(joined(open_reads_, reads)) <= kMostRowHeads;
    if (q_.meets(q) || k_.meets(k) || !fits) close();
    q_.add(q);
    k_.add(k);
    open_units_ += units;
    open_reads_ = joined(open_reads_, reads);
    open_.push_back(part);
  }

  Chunks finish() {
    close();
    return std::move(cut_);
  }

 private:
  static Range rows(int64_t first, Range part) { return {first, first + part.last}; }

  int64_t row_heads(const ReadRows& rows) const {
    return (rows.q.last - rows.q.first) * group_ + rows.k.last - rows.k.first;
  }

  /// Query heads of key heads [first, last).
  Range heads_of(Range key_heads) const {
    const Range first = query_heads(problem_, key_heads.first);
    const Range last = query_heads(problem_, key_heads.last - 1);
    const int64_t begin = std::min(first.first, problem_.heads_q);
    return {begin, std::max(begin, last.last)};
  }

  /// Chunks of the open parts: as many key heads at a time as fit.
  void close() {
    if (open_.empty()) return;
    const int64_t fit = open_units_ == 0 ? problem_.heads_kv : units_ / (open_units_ * group_);
    for (const Range& key_heads : ranges_of({0, problem_.heads_kv}, fit)) {
      if (key_heads.first == key_heads.last) continue;
      cut_.chunks.push_back(
          {.parts = cut_.parts.size(), .key_heads = key_heads, .heads = heads_of(key_heads)});
    }
    cut_.parts.push_back(std::exchange(open_, {}));
    open_units_ = 0;
    open_reads_ = {};
    q_ = k_ = RowSet();
  }

  /// Chunks of a part that does not fit: a key head at a time.
  void cut(const Part& part) {
    const int64_t widest = widest_line(part);
    const bool lines = widest <= grid_.columns && widest * grid_.heads <= units_;
    const std::vector<Piece> pieces = lines ? lines_of(part) : grid_of_pieces(part);
    const size_t first = cut_.parts.size();
    for (const Piece& piece : pieces) cut_.parts.push_back({piece.part});
    for (int64_t head = 0; head < problem_.heads_kv; ++head) {
      const Range heads = heads_of({head, head + 1});
      for (const Range& some : ranges_of(heads, lines ? grid_.heads : 1)) {
        for (size_t i = 0; i < pieces.size(); ++i) {
          cut_.chunks.push_back({.parts = first + i,
                                 .key_heads = {head, head + 1},
                                 .heads = some,
                                 .first_heads = some.first == heads.first,
                                 .last_heads = some.last == heads.last,
                                 .cut = true,
                                 .sums_q_row = part.tile.q_row + pieces[i].first_query});
        }
      }
    }
  }

  struct Piece {
    Part part;
    int64_t first_query = 0;  // of those whose dQ are summed together
  };

  /// Pieces of some queries and all keys.
  std::vector<Piece> lines_of(const Part& part) const {
    std::vector<Piece> pieces;
    for (const Range& q : query_ranges(part, grid_.heads)) {
      pieces.push_back({{part.tile, q, part.k}, q.first});
    }
    return pieces;
  }

  /// Pieces of some queries and some keys: as many queries as see a chunk's share of these keys, so
  /// that chunks are alike where the band's edge cuts corners. Of all pieces whose FP32 rows of dQ
  /// the workspace holds, those of the same keys come one after the other.
  std::vector<Piece> grid_of_pieces(const Part& part) const {
    const int64_t queries = even_step(part.q.last, kUnitQueries, grid_.lines);
    const int64_t keys = even_step(part.k.last, kUnitKeys, grid_.columns);
    std::vector<Piece> pieces;
    for (int64_t q = 0; q < part.q.last; q += queries) {
      for (int64_t k = 0; k < part.k.last; k += keys) {
        const Part strip{part.tile,
                         {q, std::min(q + queries, part.q.last)},
                         {k, std::min(k + keys, part.k.last)}};
        for (const Range& some : query_ranges(strip, 1)) {
          const Part piece{part.tile, some, strip.k};
          // Rows that see nothing are written by the first pieces of their side.
          const bool writes = problem_.features.whole && (some.first == 0 || k == 0);
          if (writes || units_of(piece) > 0) pieces.push_back({piece, q});
        }
      }
    }
    return pieces;
  }

  int64_t widest_line(const Part& part) const {
    int64_t widest = 0;
    for (int64_t q = 0; q < part.q.last; q += kUnitQueries) {
      widest = std::max(widest, units_of({part.tile, line_at(part, q), part.k}));
    }
    return widest;
  }
  static Range line_at(const Part& part, int64_t q) {
    return {q, std::min<int64_t>(q + kUnitQueries, part.q.last)};
  }

  /// Queries of a part in as few ranges as fit, about alike, of `heads` heads.
  std::vector<Range> query_ranges(const Part& part, int64_t heads) const {
    const int64_t all = units_of(part);
    const int64_t share = all / std::max<int64_t>(quotient_up(all * heads, units_), 1);
    std::vector<Range> ranges;
    int64_t first = part.q.first, units = 0;
    for (int64_t q = part.q.first; q < part.q.last; q += kUnitQueries) {
      const int64_t more = units_of({part.tile, line_at(part, q), part.k});
      const ReadRows reads = read_rows({part.tile, {first, line_at(part, q).last}, part.k});
      const bool fits =
          units <= share && (units + more) * heads <= units_ && row_heads(reads) <= kMostRowHeads;
      if (!fits && q > first) {
        ranges.push_back({first, q});
        first = q;
        units = 0;
      }
      units += more;
    }
    ranges.push_back({first, part.q.last});
    return ranges;
  }

  const TileProblem& problem_;
  int64_t units_;
  int64_t group_;
  Grid grid_;
  Parts open_;
  int64_t open_units_ = 0;
  ReadRows open_reads_;
  RowSet q_, k_;
  Chunks cut_;
};

}  // namespace

Range seen_keys(const PlacedTile& t, Range q) {
  const Band& band = t.tile.band;
  const int64_t keys = t.tile.k.size();
  if (q.first >= q.last || keys == 0 || band.lo > band.hi) return {};
  const int64_t lo = std::max(band.lo, -kUnbounded), hi = std::min(band.hi, kUnbounded);
  const int64_t first = std::max<int64_t>(q.first + lo, 0);
  const int64_t last = std::min(q.last - 1 + hi, keys - 1);
  return first <= last ? Range{first, last + 1} : Range{};
}

Range seeing_queries(const PlacedTile& t, Range k) {
  const Band& band = t.tile.band;
  const int64_t queries = t.tile.q.size();
  if (k.first >= k.last || queries == 0 || band.lo > band.hi) return {};
  const int64_t lo = std::max(band.lo, -kUnbounded), hi = std::min(band.hi, kUnbounded);
  const int64_t first = std::max<int64_t>(k.first - hi, 0);
  const int64_t last = std::min(k.last - 1 - lo, queries - 1);
  return first <= last ? Range{first, last + 1} : Range{};
}

int64_t units_of(const Part& part) {
  int64_t units = 0;
  for (int64_t q = part.q.first; q < part.q.last; q += kUnitQueries) {
    const Range seen = seen_keys(part.tile, {q, std::min<int64_t>(q + kUnitQueries, part.q.last)});
    const int64_t first = std::max(seen.first, part.k.first) - part.k.first;
    const int64_t last = std::min(seen.last, part.k.last) - part.k.first;
    if (first < last) units += (last - 1) / kUnitKeys - first / kUnitKeys + 1;
  }
  return units;
}

ReadRows read_rows(const Part& part) {
  const Range seen = seen_keys(part.tile, part.q);
  const Range keys{std::max(seen.first, part.k.first), std::min(seen.last, part.k.last)};
  if (keys.first >= keys.last) return {};
  const int64_t q = part.tile.q_row, k = part.tile.k_row;
  return {.q = {q + part.q.first, q + part.q.last}, .k = {k + keys.first, k + keys.last}};
}

ReadRows joined(const ReadRows& a, const ReadRows& b) {
  const auto both = [](const Range& x, const Range& y) {
    if (x.first == x.last) return y;
    if (y.first == y.last) return x;
    return Range{std::min(x.first, y.first), std::max(x.last, y.last)};
  };
  return {both(a.q, b.q), both(a.k, b.k)};
}

Grid grid_of(int64_t units, int64_t group) {
  // Of the default scratch: 64 columns, and 128 lines. The longest sum, of dQ over 64 units, is
  // then two thirds of a multiprocessor's share of a chunk, and the triangle at a causal diagonal,
  // half of lines x columns, is one chunk.
  Grid grid;
  grid.columns = std::max<int64_t>(static_cast<int64_t>(std::sqrt(static_cast<double>(units))), 1);
  grid.lines = std::max<int64_t>(2 * units / grid.columns, 1);
  constexpr int64_t kLeastLines = 8;  // of a head
  grid.heads = std::clamp<int64_t>(grid.lines / kLeastLines, 1, std::max<int64_t>(group, 1));
  return grid;
}

int64_t group_heads(const TileProblem& p) { return std::min(p.group, p.heads_q); }

Chunks cut_into_chunks(const TileProblem& problem, std::span<const PlacedTile> tiles,
                       int64_t units) {
  Cutter cutter(problem, units);
  for (const PlacedTile& tile : tiles) cutter.add(tile);
  return cutter.finish();
}

}  // namespace longspan::hopper
