// Where a producer finds the key blocks of its tiles, and in which order it takes them.
#pragma once

#include "providers/hopper/forward/pull.cuh"
#include "providers/hopper/forward/shared.cuh"

namespace longspan::hopper {

/// In the place of a row of own K and V: the block lies where the tile says.
constexpr int kInTile = -1;

/// In order, at the rows of the tile.
template <class C>
class KeysInPlace {
 public:
  __device__ __forceinline__ KeysInPlace(const Parameters& p, const Shared&) : p_(p) {}
  __device__ __forceinline__ void begin(int, const Unit&) {}
  /// The n-th block of a tile, n from its first one on.
  __device__ __forceinline__ int turn(int, int n) const { return n; }
  /// The row of own K and V where the n-th block lies, or kInTile; returns once it is there. Blocks
  /// of a tile are asked for in order.
  __device__ __forceinline__ int find(int, int) { return kInTile; }
  __device__ __forceinline__ const Mapped& k(int) const { return p_.k; }
  __device__ __forceinline__ const Mapped& v(int) const { return p_.v; }

 private:
  const Parameters& p_;
};

/// In turn from the first own ones on, in own K and V or among the gathered rows.
// NOTE: what belongs to the tile stays in shared memory; this thread has few registers.
template <class C>
class PulledKeys {
 public:
  __device__ __forceinline__ PulledKeys(const Parameters& p, const Shared& sm)
      : p_(static_cast<const PullParameters&>(p)), sm_(sm), arrivals_(p_) {}

  __device__ __forceinline__ void begin(int number, const Unit& unit) {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int first = tile.block_min, start = p_.turns[unit.block.tile].start;
    sm_.first_blocks[number & 1] = start > first && start <= tile.block_max ? start : first;
    place_ = p_.turns[unit.block.tile].place;
    if (tile.keys > 0) next_ = own_row(number, first);
  }

  __device__ __forceinline__ int turn(int number, int n) const {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int first = tile.block_min, last = tile.block_max;
    const int block = sm_.first_blocks[number & 1] + n - first;
    return block > last ? block - last + first - 1 : block;
  }

  __device__ __forceinline__ int find(int number, int n) {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int keys = tile.keys;
    if (keys == 0) return kInTile;
    const int row = next_;
    if (n < tile.block_max) next_ = own_row(number, n + 1);
    if (row >= 0) return row;
    const int first = turn(number, n) * C::kKeys, k_row = tile.k_row;
    arrivals_.wait(k_row + first, k_row + min(first + C::kKeys, keys));
    return kInTile;
  }

  __device__ __forceinline__ const Mapped& k(int own) const { return own < 0 ? p_.k : p_.own_k; }
  __device__ __forceinline__ const Mapped& v(int own) const { return own < 0 ? p_.v : p_.own_v; }

 private:
  __device__ __forceinline__ int own_row(int number, int n) const {
    return __ldg(p_.places + place_ + turn(number, n));
  }

  const PullParameters& p_;
  const Shared& sm_;
  Arrivals arrivals_;
  int place_ = 0;
  int next_ = 0;  // own row of the block that will be asked for
};

}  // namespace longspan::hopper
