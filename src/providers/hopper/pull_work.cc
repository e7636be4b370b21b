#include "providers/hopper/pull_work.h"

#include <algorithm>
#include <numeric>

namespace longspan::hopper {
namespace {

class Maker {
 public:
  Maker(std::span<const PlacedTile> tiles, std::span<const Pull> pulls, const PullShape& shape)
      : pulls_(pulls.begin(), pulls.end()), shape_(shape) {
    for (const PlacedTile& t : tiles) {
      if (t.tile.q.size() > 0) tiles_.push_back(&t);
    }
    std::sort(pulls_.begin(), pulls_.end(),
              [](const Pull& a, const Pull& b) { return a.dst_row < b.dst_row; });
    const int64_t rows = pulls_.empty() ? 0 : pulls_.back().dst_row + pulls_.back().rows;
    moved_.assign(static_cast<size_t>(rows), true);
    constexpr int kLeastLog2 = 8;
    work_.piece_log2 = kLeastLog2;
    while ((std::max<int64_t>(rows, 1) - 1) >> work_.piece_log2 >= kMostPieces) ++work_.piece_log2;
    work_.arrived.assign(kMostPieces, 0);
  }

  PullWork run() && {
    for (const PlacedTile* t : tiles_) work_.turns.push_back(turn_of(*t));
    for (const size_t tile : longest_first()) add_rows(tile);
    for (const Range& rows : order_) add_pieces(rows);
    return std::move(work_);
  }

 private:
  int64_t blocks(const PlacedTile& t) const {
    return (t.tile.k.size() + shape_.keys - 1) / shape_.keys;
  }
  /// Gathered rows of a tile's key block.
  Range rows_of(const PlacedTile& t, int64_t block) const {
    const int64_t first = t.k_row + block * shape_.keys;
    return {first, std::min(first + shape_.keys, t.k_row + t.tile.k.size())};
  }
  /// The pull that brings a row. Every row of a tile has one.
  const Pull& pull_of(int64_t row) const {
    const auto after =
        std::upper_bound(pulls_.begin(), pulls_.end(), row,
                         [](int64_t r, const Pull& pull) { return r < pull.dst_row; });
    return *(after - 1);
  }

  /// Places its blocks. It starts with the longest row of own blocks, in circular order.
  Turn turn_of(const PlacedTile& t) {
    const auto place = static_cast<int32_t>(work_.places.size());
    const int64_t count = blocks(t);
    for (int64_t i = 0; i < count; ++i) {
      const Range rows = rows_of(t, i);
      const Pull& pull = pull_of(rows.first);
      const bool own = pull.lender == kOwnRows && rows.last <= pull.dst_row + pull.rows;
      work_.places.push_back(own ? static_cast<int32_t>(pull.src_row + rows.first - pull.dst_row)
                                 : -1);
      if (!own) std::fill(moved_.begin() + rows.first, moved_.begin() + rows.last, false);
    }
    const auto own = [&](int64_t i) { return work_.places[static_cast<size_t>(place + i)] >= 0; };
    int64_t start = 0;
    for (int64_t i = 0, best = 0; i < count; ++i) {
      if (!own(i) || (i > 0 && own(i - 1))) continue;
      int64_t length = 1;
      while (length < count && own((i + length) % count)) ++length;
      if (length <= best) continue;
      best = length;
      start = i;
    }
    return {static_cast<int32_t>(start), place};
  }

  std::vector<size_t> longest_first() const {
    std::vector<size_t> order(tiles_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return tiles_[a]->tile.k.size() > tiles_[b]->tile.k.size();
    });
    return order;
  }

  /// The rows of a tile that no earlier one has moved, in its order.
  void add_rows(size_t tile) {
    const PlacedTile& t = *tiles_[tile];
    const int64_t count = blocks(t);
    for (int64_t n = 0; n < count; ++n) {
      const Range rows = rows_of(t, (work_.turns[tile].start + n) % count);
      for (int64_t row = rows.first; row < rows.last; ++row) {
        if (moved_[static_cast<size_t>(row)]) continue;
        moved_[static_cast<size_t>(row)] = true;
        if (order_.empty() || order_.back().last != row) order_.push_back({row, row});
        ++order_.back().last;
      }
    }
  }

  /// Rows of one pull and one piece at a time, K before V.
  void add_pieces(const Range& rows) {
    for (int64_t row = rows.first; row < rows.last;) {
      const Pull& pull = pull_of(row);
      const int64_t piece = row >> work_.piece_log2;
      const int64_t end = std::min({rows.last, pull.dst_row + pull.rows,  //
                                    (piece + 1) << work_.piece_log2});
      const int lender = pull.lender == kOwnRows ? shape_.lenders : pull.lender;
      const int64_t from = pull.src_row + row - pull.dst_row;
      add_units({.loan = 2 * lender, .piece = static_cast<int32_t>(piece)}, from, row, end - row,
                shape_.row_bytes_k);
      add_units({.loan = 2 * lender + 1, .piece = static_cast<int32_t>(piece)}, from, row,
                end - row, shape_.row_bytes_v);
      row = end;
    }
  }

  void add_units(PullUnit unit, int64_t src_row, int64_t dst_row, int64_t rows, int64_t row_bytes) {
    const int64_t bytes = rows * row_bytes;
    for (int64_t done = 0; done < bytes; done += shape_.unit_bytes) {
      unit.src = src_row * row_bytes + done;
      unit.dst = dst_row * row_bytes + done;
      unit.bytes = static_cast<int32_t>(std::min(shape_.unit_bytes, bytes - done));
      work_.units.push_back(unit);
      ++work_.arrived[static_cast<size_t>(unit.piece)];
    }
  }

  std::vector<const PlacedTile*> tiles_;
  std::vector<Pull> pulls_;  // by their rows
  PullShape shape_;
  std::vector<char> moved_;   // of each gathered row: need not be moved any more
  std::vector<Range> order_;  // of rows
  PullWork work_;
};

}  // namespace

Start start_of(const PullWork& work, const Block& block, const Range& seen) {
  if (seen.first == seen.last) return {};
  const Turn& turn = work.turns[static_cast<size_t>(block.tile)];
  const bool sees_own = seen.first <= turn.start && turn.start < seen.last;
  const auto first = sees_own ? turn.start : static_cast<int32_t>(seen.first);
  return {.block = first,
          .row = work.places[static_cast<size_t>(turn.place + first)],
          .place = turn.place};
}

PullWork make_pull_work(std::span<const PlacedTile> tiles, std::span<const Pull> pulls,
                        const PullShape& shape) {
  return Maker(tiles, pulls, shape).run();
}

}  // namespace longspan::hopper
