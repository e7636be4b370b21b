// What one work item of the tiled backward pass works on.
#pragma once

#include <cstdint>

#include "longspan/provider.h"
#include "providers/cpu/tickets.h"

namespace longspan::cpu {

/// One thread's buffers: blocks of `block` rows.
template <class T>
struct BackwardScratch {
  T* k = nullptr;        // [block][ld_qk]
  T* k_lanes = nullptr;  // [dim_qk][block], scaled: one key per lane
  T* v_lanes = nullptr;  // [dim_v][block]
  T* q = nullptr;        // [block][ld_qk]
  T* dout = nullptr;     // [block][ld_v]
  T* p = nullptr;        // [queries][block]: scores, then probabilities
  T* ds = nullptr;       // [queries][block]: dP, then gradients of the scores
  T* dq = nullptr;       // [queries][ld_qk]: one block's contribution
  T* dk = nullptr;       // [keys][ld_qk]
  T* dv = nullptr;       // [keys][ld_v]
  T* lse = nullptr;      // [block], log2
  T* delta = nullptr;    // [block]
};

/// A block of keys of one key head in one tile.
struct BackwardJob {
  const BackwardTiles& call;
  const PlacedTile& tile;
  int64_t head = 0;
  int64_t k0 = 0;  // inside the tile
  int64_t nk = 0;
  Tickets& tickets;
  int64_t item = 0;
  int64_t before = -1;  // the item of the previous block of keys, or none
};

/// The queries of one step of a job.
struct BackwardStep {
  int64_t head = 0;
  int64_t q0 = 0;  // inside the tile
  int64_t nq = 0;
  int64_t position = 0;
};

}  // namespace longspan::cpu
