// The producer warpgroup: one thread loads Q, K and V, a warp stores O, a warp zeroes rows of V.
#pragma once

#include "providers/hopper/forward/shared.cuh"
#include "providers/hopper/ptx/tma.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

/// Loads the box of `tensor` that begins at a row of a head, `box_bytes` for every 64 columns.
__device__ __forceinline__ void load_rows(uint32_t to, const Mapped& tensor, uint32_t bar,
                                          int box_bytes, Coordinates c) {
#pragma unroll 1
  for (int i = 0; i < tensor.boxes; ++i, c.x += 64) {
    tma_load(to + i * box_bytes, &tensor.map, bar, c);
  }
}

/// Where row `row` of a head lies. Rows of a box do not leave their batch entry.
__device__ __forceinline__ Coordinates coordinates_of(const Mapped& tensor, int row, int head) {
  const int batch = row < tensor.rows ? 0 : row / tensor.rows;
  return {.row = row - batch * tensor.rows, .head = head, .batch = batch};
}

template <class C>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Parameters& p, const Shared& sm) : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    int tile = 0;
    for (int unit = blockIdx.x; unit < p_.units; ++tile) {
      mbarrier_wait(sm_.q_empty + buffer_of<C>(tile) * 8, phase_of<C>(tile) ^ 1);
      announce(sm_.tiles[tile & 1], unit);
      load_q(sm_.tiles[tile & 1], tile);
      unit = load_keys(tile);
    }
    mbarrier_wait(sm_.q_empty + buffer_of<C>(tile) * 8, phase_of<C>(tile) ^ 1);
    sm_.tiles[tile & 1].first = -1;
    mbarrier_arrive(sm_.q_full + buffer_of<C>(tile) * 8);
    load_v(step_ - 1);
    next_tail({-1, 0});
    mbarrier_arrive(sm_.tail_full);
  }

 private:
  /// Fills in the tile that `unit` stands for.
  __device__ __forceinline__ void announce(volatile Tile& tile, int unit) const {
    const int section_units = p_.section_heads * p_.count;
    const int section = unit / section_units, rest = unit - section * section_units;
    const int first_head = section * p_.section_heads;
    const int heads = min(p_.section_heads, p_.heads - first_head), index = rest / heads;
    const int head = first_head + rest - index * heads;
    const Block b = p_.blocks[index];
    const int last_query = min(b.first + C::kRows, b.queries) - 1;
    const int first = max(b.first + b.lo, 0), last = min(last_query + b.hi, b.keys - 1);
    const bool sees = first <= last;
    tile.first = b.first, tile.queries = b.queries;
    tile.keys = sees ? b.keys : 0;
    tile.lo = b.lo, tile.hi = b.hi;
    tile.q_row = b.q_row, tile.head = head;
    tile.block_min = sees ? first / C::kKeys : 0;
    tile.block_max = sees ? last / C::kKeys : 0;
    tile.key_head = (head + p_.group_offset) / p_.group;
    tile.k_batch = b.k_row < p_.k.rows ? 0 : b.k_row / p_.k.rows;
    tile.k_row = b.k_row - tile.k_batch * p_.k.rows;
    tile.v_batch = b.k_row < p_.v.rows ? 0 : b.k_row / p_.v.rows;
    tile.v_row = b.k_row - tile.v_batch * p_.v.rows;
  }

  __device__ __forceinline__ void load_q(volatile Tile& tile, int number) const {
    const int buffer = buffer_of<C>(number);
    const uint32_t bar = sm_.q_full + buffer * 8;
    mbarrier_expect_bytes(bar, C::kQBytes);
    const int head = tile.head, row = tile.q_row + tile.first;
#pragma unroll 1
    for (int g = 0; g < C::kGroups; ++g) {
      load_rows(sm_.q + buffer * C::kQBytes + g * C::kQGroupBytes, p_.q, bar, 8192,
                coordinates_of(p_.q, row + g * 64, head));
    }
  }

  /// Loads K and V of a tile, V one block behind K. Returns the unit to go on with.
  // NOTE: it is drawn late, so that a block does not commit itself a whole tile ahead.
  __device__ __forceinline__ int load_keys(int number) {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int last = tile.block_max;
    int unit = 0;
#pragma unroll 1
    for (int i = tile.block_min; i <= last; ++i) {
      if (i == last) unit = gridDim.x + atomicInc(p_.counter, p_.units - 1);
      const uint32_t slot = opaque(step_ & 1), bar = sm_.k_full + slot * 8;
      mbarrier_wait(bar + (sm_.k_empty - sm_.k_full), ((step_ >> 1) & 1) ^ 1);
      mbarrier_expect_bytes(bar, C::kStageBytes);
      load_rows(sm_.k + slot * C::kStageBytes, p_.k, bar, C::kKeyBlockBytes,
                {.row = tile.k_row + i * C::kKeys, .head = tile.key_head, .batch = tile.k_batch});
      ++step_;
      load_v(step_ - 2);
      v_block_ = i;
      v_tile_ = number & 1;
    }
    if (C::kQBuffers == 1) load_v(step_ - 1);
    return unit;
  }

  /// Loads the V block that waits, as number `index`.
  __device__ __forceinline__ void load_v(int index) {
    if (v_block_ < 0) return;
    const uint32_t slot = opaque(index & 1), full = sm_.v_full + slot * 8;
    mbarrier_wait(full + (sm_.v_empty - sm_.v_full), ((index >> 1) & 1) ^ 1);
    volatile Tile& tile = sm_.tiles[v_tile_];
    const int first = v_block_ * C::kKeys, row = tile.v_row + first, keys = tile.keys - first;
    // Behind the tensor's last row TMA writes zeros.
    const bool tail = keys < C::kKeys && row + keys < p_.v.rows;
    if (tail) next_tail({static_cast<int>(slot), keys});
    const uint32_t bar = tail ? sm_.tail_full : full;
    mbarrier_expect_bytes(bar, C::kStageBytes);
    load_rows(sm_.v + slot * C::kStageBytes, p_.v, bar, C::kKeyBlockBytes,
              {.row = row, .head = tile.key_head, .batch = tile.v_batch});
    v_block_ = -1;
  }

  __device__ __forceinline__ void next_tail(const Tail& tail) {
    mbarrier_wait(sm_.tail_empty, (tails_ & 1) ^ 1);
    sm_.tail->slot = tail.slot;
    sm_.tail->valid = tail.valid;
    ++tails_;
  }

  const Parameters& p_;
  const Shared& sm_;
  int step_ = 0;                   // K blocks loaded
  int v_block_ = -1, v_tile_ = 0;  // the V block still to load, of that tile; negative: none
  int tails_ = 0;
};

/// Zeroes what V stages hold beyond the keys of their tile, and passes them on. Probabilities there
/// are 0, but what lies there may be NaN.
template <class C>
__device__ __forceinline__ void clear_tails(const Shared& sm, int lane) {
  for (int number = 0;; ++number) {
    mbarrier_wait(sm.tail_full, number & 1);
    const int slot = sm.tail->slot, valid = sm.tail->valid;
    if (slot < 0) return;
#pragma unroll 1
    for (int block = 0; block < C::kColumnBlocks; ++block) {
      const uint32_t base = sm.v + slot * C::kStageBytes + block * C::kKeyBlockBytes;
#pragma unroll 1
      for (int at = valid * 128 + lane * 16; at < C::kKeyBlockBytes; at += 32 * 16) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(base + at), "r"(0)
                     : "memory");
      }
    }
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      mbarrier_arrive(sm.v_full + slot * 8);
      mbarrier_arrive(sm.tail_empty);
    }
  }
}

}  // namespace longspan::hopper
