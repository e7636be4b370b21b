// What one work item of the tiled backward pass works on.
#pragma once

#include <cstdint>
#include <type_traits>

#include "longspan/provider.h"
#include "providers/cpu/blocks.h"
#include "providers/cpu/tickets.h"
#include "providers/cpu/tiled_terms.h"
#include "providers/cpu/waves.h"
#include "providers/rules.h"

namespace longspan::cpu {

/// One thread's buffers: blocks of `block` rows. dP is of type S; where S is T, dp is ds and
/// dout_wide is dout.
template <class T, class S>
struct BackwardScratch {
  BackwardScratch(Pieces<T>& pieces, const TileProblem& problem, const TiledTerms<T>& steps,
                  int64_t block) {
    const int64_t ld_qk = padded(problem.dim_qk);
    const int64_t ld_v = padded(problem.dim_v);
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
    terms = steps.scratch(pieces);
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
  TermsScratch<T> terms;
};

/// A block of keys of some key heads in one tile.
struct BackwardJob {
  const BackwardTiles& call;
  const PlacedTile& tile;
  Range heads;
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

/// How tiles become work items. Elements of a bias may be those of several tiles, and of all heads
/// unless it is per head. Their gradients are added in a fixed order: one tile follows the other,
/// and one item does all heads of a block of keys.
class BackwardOrder {
 public:
  BackwardOrder(const TileProblem& problem, int64_t block) : problem_(problem), block_(block) {
    const Bias bias = problem.features.bias;
    const bool per_head = bias == Bias::kNone || bias == Bias::k1H || bias == Bias::kBH;
    parts_ = per_head ? problem.heads_kv : 1;
    writes_ = bias == Bias::kNone ? Writes::kQueryAndKeyRows : Writes::kShared;
  }

  Writes writes() const { return writes_; }

  int64_t items(const Tile& tile) const {
    return empty(tile) ? 0 : blocks(tile.k.size(), block_) * parts_;
  }

  /// Most positions of an item: blocks of queries, head after head.
  int64_t positions(int64_t rows_q) const {
    return blocks(rows_q, block_) * (parts_ == 1 ? problem_.heads_q : problem_.group);
  }

  /// Heads change fastest, so that cores rarely work on neighbouring blocks of one head.
  BackwardJob job(const BackwardTiles& call, const PlacedTile& tile, int64_t item, int64_t number,
                  Tickets& tickets) const {
    const int64_t k0 = item / parts_ * block_;
    const int64_t heads = problem_.heads_kv / parts_;
    const int64_t first = item % parts_ * heads;
    return {.call = call,
            .tile = tile,
            .heads = {first, first + heads},
            .k0 = k0,
            .nk = std::min(block_, tile.tile.k.size() - k0),
            .tickets = tickets,
            .item = number,
            .before = k0 == 0 ? -1 : number - parts_};
  }

 private:
  TileProblem problem_;
  int64_t block_;
  int64_t parts_;  // of the heads
  Writes writes_;
};

}  // namespace longspan::cpu
