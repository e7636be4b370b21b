#include "providers/cpu/waves.h"

namespace longspan::cpu {
namespace {

struct Rows {
  int64_t first = 0;
  int64_t last = 0;

  bool overlaps(const Rows& other) const {
    return first < other.last && other.first < last && first < last && other.first < other.last;
  }
};

Rows query_rows(const PlacedTile& t) { return {t.q_row, t.q_row + t.tile.q.size()}; }
Rows key_rows(const PlacedTile& t) { return {t.k_row, t.k_row + t.tile.k.size()}; }

/// The rows of one side of a wave.
class Taken {
 public:
  using Side = Rows (*)(const PlacedTile&);
  Taken(std::span<const PlacedTile> tiles, Side side) : tiles_(tiles), side_(side) {}

  /// False when a row of tile `index` is taken; exact for short waves, else true only for tiles
  /// beyond all taken rows.
  bool free(size_t begin, size_t index) const {
    const Rows rows = side_(tiles_[index]);
    if (!hull_.overlaps(rows)) return true;
    constexpr size_t kCompared = 64;
    if (index - begin > kCompared) return false;
    for (size_t i = begin; i < index; ++i) {
      if (side_(tiles_[i]).overlaps(rows)) return false;
    }
    return true;
  }

  void take(size_t index) {
    const Rows rows = side_(tiles_[index]);
    if (rows.first >= rows.last) return;
    const bool none = hull_.first >= hull_.last;
    hull_ = none ? rows : Rows{std::min(hull_.first, rows.first), std::max(hull_.last, rows.last)};
  }

 private:
  std::span<const PlacedTile> tiles_;
  Side side_;
  Rows hull_;
};

}  // namespace

size_t Wave::wave_end(std::span<const PlacedTile> tiles, size_t begin, Writes writes) {
  if (writes == Writes::kShared) return begin + 1;
  Taken queries(tiles, query_rows);
  Taken keys(tiles, key_rows);
  const size_t limit = std::min(tiles.size(), begin + kMaxTiles);
  for (size_t i = begin; i < limit; ++i) {
    if (!queries.free(begin, i)) return i;
    if (writes == Writes::kQueryAndKeyRows && !keys.free(begin, i)) return i;
    queries.take(i);
    keys.take(i);
  }
  return limit;
}

}  // namespace longspan::cpu
