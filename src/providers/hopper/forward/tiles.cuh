// Tiles of a launch, and where TMA finds their rows.
#pragma once

#include <cstdint>

#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/ptx/tma.cuh"

namespace longspan::hopper {

/// A block of queries of one head, or of a few that share its rows, as a producer announces it.
struct Tile {
  int32_t first;        // index in the entry of its first query; negative: there are no more tiles
  int32_t queries;      // of the entry
  int32_t keys;         // of the entry; 0 where the tile sees none
  int32_t lo, hi;       // query i sees key j when lo <= j - i <= hi
  int32_t q_row, head;  // the first head
  int32_t tokens;       // number in Terms::tokens
  int32_t block_min, block_max;                      // of keys
  int32_t key_head, k_row, k_batch, v_row, v_batch;  // where the entry's keys begin
};

/// What a unit of a launch stands for.
struct Unit {
  Block block;
  int32_t head;
  int32_t index;  // of the block
};

/// Query heads that share a block's rows, as a power of two.
template <class C>
__device__ __forceinline__ int heads_log2(const Parameters& p) {
  return C::kShares ? p.heads_log2 : 0;
}

/// Queries among the 64 rows of a warpgroup, which are those of one head after the other.
template <class C>
__device__ __forceinline__ int queries_of_warpgroup(const Parameters& p) {
  return 64 >> heads_log2<C>(p);
}

template <class C>
__device__ __forceinline__ Unit unit_of(const Parameters& p, int unit) {
  const int section_units = p.section_heads * p.count;
  const int section = unit / section_units, rest = unit - section * section_units;
  const int first_head = section * p.section_heads;
  const int heads = min(p.section_heads, p.heads - first_head), index = rest / heads;
  const int head = first_head + rest - index * heads;
  return {p.blocks[index], head << heads_log2<C>(p), index};
}

/// Fills in the tile of a unit.
template <class C>
__device__ __forceinline__ void announce(const Parameters& p, volatile Tile& tile, const Unit& u) {
  const Block& b = u.block;
  const int last_query = min(b.first + (C::kRows >> heads_log2<C>(p)), b.queries) - 1;
  const int first = max(b.first + b.lo, 0), last = min(last_query + b.hi, b.keys - 1);
  const bool sees = first <= last;
  tile.first = b.first, tile.queries = b.queries;
  tile.keys = sees ? b.keys : 0;
  tile.lo = b.lo, tile.hi = b.hi;
  tile.q_row = b.q_row, tile.head = u.head, tile.tokens = b.tile;
  tile.block_min = sees ? first / C::kKeys : 0;
  tile.block_max = sees ? last / C::kKeys : 0;
  tile.key_head = (u.head + p.group_offset) / p.group;
  const int k_batch = b.k_row < p.k.rows ? 0 : b.k_row / p.k.rows;
  tile.k_batch = k_batch, tile.k_row = b.k_row - k_batch * p.k.rows;
  const int v_batch = b.k_row < p.v.rows ? 0 : b.k_row / p.v.rows;
  tile.v_batch = v_batch, tile.v_row = b.k_row - v_batch * p.v.rows;
}

/// The key blocks of KEYS that hide nothing from `queries` queries, from the tile's `low` on.
struct Unmasked {
  int first = 0, last = -1;
  __device__ __forceinline__ bool holds(int block) const { return first <= block && block <= last; }
};

template <int KEYS>
__device__ __forceinline__ Unmasked unmasked_blocks(volatile Tile& tile, int low, int queries) {
  const int hi = tile.hi, first = max(low + queries - 1 + tile.lo, 0);
  const int last = low + hi < 0 ? -1 : (min(low + hi, tile.keys - 1) + 1) / KEYS - 1;
  return {(first + KEYS - 1) / KEYS, last};
}

/// Where row `row` of a head lies.
__device__ __forceinline__ Coordinates coordinates_of(const Mapped& tensor, int row, int head) {
  const int batch = row < tensor.rows ? 0 : row / tensor.rows;
  return {.row = row - batch * tensor.rows, .head = head, .batch = batch};
}

/// Loads `blocks` blocks of 64 columns, from number `first` on, of `block_bytes` bytes each.
__device__ __forceinline__ void load_rows(uint32_t to, const Mapped& tensor, uint32_t bar,
                                          int block_bytes, Coordinates c, int first = 0,
                                          int blocks = 1) {
#pragma unroll 1
  for (int i = 0; i < blocks; i += tensor.box_blocks) {
    if (tensor.by_blocks) {
      c.block = first + i;
    } else {
      c.x = (first + i) * 64;
    }
    tma_load(to + i * block_bytes, &tensor.map, bar, c);
  }
}

/// One warp makes rows from `valid` on zeros, in `blocks` blocks of 64 columns, for wgmma to read.
__device__ __forceinline__ void clear_rows(uint32_t base, int blocks, int block_bytes, int valid,
                                           int lane) {
#pragma unroll 1
  for (int block = 0; block < blocks; ++block, base += block_bytes) {
#pragma unroll 1
    for (int at = valid * 128 + lane * 16; at < block_bytes; at += 32 * 16) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(base + at), "r"(0) : "memory");
    }
  }
  fence_async_proxy();
  __syncwarp();
}

}  // namespace longspan::hopper
