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
  /// A tile of this unit comes next; it has been announced as `number`.
  __device__ __forceinline__ void expect(const Unit&) {}
  __device__ __forceinline__ void begin(int) {}
  /// The block that a tile of blocks [first, last] begins with, and the one that follows.
  __device__ __forceinline__ int first(int, int first) const { return first; }
  __device__ __forceinline__ int next(int, int block, int) { return block + 1; }
  /// The row of own K and V where the block lies, or kInTile; returns once it is there. Blocks of a
  /// tile are asked for in turn.
  __device__ __forceinline__ int find(int, int) { return kInTile; }
  /// No more tiles.
  __device__ __forceinline__ void end() const {}
  __device__ __forceinline__ const Mapped& k(int) const { return p_.k; }
  __device__ __forceinline__ const Mapped& v(int) const { return p_.v; }

 protected:
  const Parameters& p_;
};

/// In turn from the block on that begin_blocks() chose, at the rows of the tile.
template <class C>
class KeysInTurn : public KeysInPlace<C> {
 public:
  __device__ __forceinline__ KeysInTurn(const Parameters& p, const Shared& sm)
      : KeysInPlace<C>(p, sm), sm_(sm) {}
  __device__ __forceinline__ void begin(int number) const {
    begin_blocks<C>(this->p_, sm_, number);
  }
  __device__ __forceinline__ int first(int number, int) const {
    return first_block<C>(sm_, number);
  }
  __device__ __forceinline__ int next(int number, int block, int last) const {
    return block == last ? sm_.tiles[number & 1].block_min : block + 1;
  }

 private:
  const Shared& sm_;
};

/// In turn from the first own ones on, in own K and V or among the gathered rows.
// NOTE: the time from one block to the next counts: its own row is loaded a block ahead. This
// thread has few registers, so that what belongs to the tile stays in shared memory.
template <class C>
class PulledKeys {
 public:
  __device__ __forceinline__ PulledKeys(const Parameters& p, const Shared& sm)
      : p_(static_cast<const PullParameters&>(p)), sm_(sm), arrivals_(p_) {}

  __device__ __forceinline__ void expect(const Unit& unit) { start_ = p_.starts[unit.index]; }
  __device__ __forceinline__ void begin(int number) {
    sm_.first_blocks[number & 1] = start_.block;
    own_row_ = start_.row;
  }
  __device__ __forceinline__ int first(int, int) const { return start_.block; }
  __device__ __forceinline__ int next(int number, int block, int last) {
    int following = block + 1;
    if (block == last) following = sm_.tiles[number & 1].block_min;
    if (start_.place >= 0) own_row_ = __ldg(p_.places + start_.place + following);
    return following;
  }
  __device__ __forceinline__ int find(int number, int block) {
    if (own_row_ >= 0) return own_row_;
    if (start_.place < 0) return kInTile;
    volatile Tile& tile = sm_.tiles[number & 1];
    const int first = block * C::kKeys, k_row = tile.k_row;
    arrivals_.wait(k_row + first, k_row + min(first + C::kKeys, tile.keys));
    return kInTile;
  }
  __device__ __forceinline__ void end() const { leave<C>(p_); }

  __device__ __forceinline__ const Mapped& k(int own) const { return own < 0 ? p_.k : p_.own_k; }
  __device__ __forceinline__ const Mapped& v(int own) const { return own < 0 ? p_.v : p_.own_v; }

 private:
  const PullParameters& p_;
  const Shared& sm_;
  Arrivals arrivals_;
  Start start_;            // of the tile
  int own_row_ = kInTile;  // of the block that will be asked for
};

}  // namespace longspan::hopper
