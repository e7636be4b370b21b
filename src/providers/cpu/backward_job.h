// What one work item of the tiled backward pass works on.
#pragma once

#include <cstdint>
#include <type_traits>

#include "longspan/provider.h"
#include "providers/cpu/blocks.h"
#include "providers/cpu/tickets.h"

namespace longspan::cpu {

/// One thread's buffers: blocks of `block` rows. dP is of type S; where S is T, dp is ds and
/// dout_wide is dout.
template <class T, class S>
struct BackwardScratch {
  BackwardScratch(Pieces<T>& pieces, const TileProblem& problem, int64_t block, int64_t ld_qk,
                  int64_t ld_v) {
    k = pieces.take(block * ld_qk);
    k_lanes = pieces.take(problem.dim_qk * block);
    v_lanes = pieces.template take_as<S>(problem.dim_v * block);
    q = pieces.take(block * ld_qk);
    dout = pieces.take(block * ld_v);
    p = pieces.take(block * block);
    ds = pieces.take(block * block);
    dq = pieces.take(block * ld_qk);
    dk = pieces.take(block * ld_qk);
    dv = pieces.take(block * ld_v);
    lse = pieces.take(block);
    lse_rest = pieces.take(block);
    delta = pieces.template take_as<S>(block);
    if constexpr (std::is_same_v<S, T>) {
      dout_wide = dout;
      dp = ds;
    } else {
      dout_wide = pieces.template take_as<S>(block * ld_v);
      dp = pieces.template take_as<S>(block * block);
    }
  }

  T* k = nullptr;          // [block][ld_qk]
  T* k_lanes = nullptr;    // [dim_qk][block], in score units: one key per lane
  S* v_lanes = nullptr;    // [dim_v][block]
  T* q = nullptr;          // [block][ld_qk]
  T* dout = nullptr;       // [block][ld_v]
  S* dout_wide = nullptr;  // [block][ld_v]
  S* dp = nullptr;         // [queries][block]
  T* p = nullptr;          // [queries][block]: scores, then probabilities
  T* ds = nullptr;         // [queries][block]: gradients of the scores
  T* dq = nullptr;         // [queries][ld_qk]: one block's contribution
  T* dk = nullptr;         // [keys][ld_qk]
  T* dv = nullptr;         // [keys][ld_v]
  T* lse = nullptr;        // [block], in score units
  T* lse_rest = nullptr;   // [block]: what rounding took from it
  S* delta = nullptr;      // [block]
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
