// Order of tiles: runs of tiles that touch different rows are computed in parallel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/workers.h"
#include "longspan/provider.h"

namespace longspan::cpu {

/// What tiles write: rows of a direction, or also what all tiles share.
enum class Writes { kQueryRows, kQueryAndKeyRows, kShared };

/// Tiles [begin, end) whose written rows differ, and the number of work items before each.
class Wave {
 public:
  static constexpr size_t kMaxTiles = 1024;

  /// The longest wave that starts at `begin`; items(tile) says how many items a tile has.
  template <class Items>
  Wave(std::span<const PlacedTile> tiles, size_t begin, Writes writes, Items&& items)
      : begin_(begin), end_(wave_end(tiles, begin, writes)) {
    for (size_t i = begin_; i < end_; ++i)
      first_[i + 1 - begin_] = first_[i - begin_] + items(tiles[i]);
  }

  size_t end() const { return end_; }
  int64_t items() const { return first_[end_ - begin_]; }

  /// Calls body(tile index, item of the tile, item of the wave, slot) for every item on all
  /// workers. Items start in ascending order. Several small items make one index of the loop.
  template <class Body>
  void run(Workers& workers, Body&& body) const {
    const int64_t batch = std::clamp<int64_t>(items() / (workers.threads() * int64_t{64}), 1, 64);
    workers.for_each((items() + batch - 1) / batch, [&](int64_t index, int slot) {
      const int64_t first = index * batch;
      const int64_t last = std::min(first + batch, items());
      size_t tile = static_cast<size_t>(
          std::upper_bound(first_.begin(), first_.begin() + (end_ - begin_) + 1, first) -
          first_.begin() - 1);
      for (int64_t item = first; item < last; ++item) {
        while (item >= first_[tile + 1]) ++tile;
        body(begin_ + tile, item - first_[tile], item, slot);
      }
    });
  }

 private:
  static size_t wave_end(std::span<const PlacedTile> tiles, size_t begin, Writes writes);

  size_t begin_;
  size_t end_;
  std::array<int64_t, kMaxTiles + 1> first_{};
};

}  // namespace longspan::cpu
