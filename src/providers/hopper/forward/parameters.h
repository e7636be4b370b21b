// What a forward kernel is launched with. Tensor maps have the dimensions {columns, rows, blocks of
// 64 columns, heads, batch}.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "longspan/loan.h"
#include "providers/hopper/pull_work.h"
#include "providers/hopper/work.h"
#include "providers/rows/views.h"

namespace longspan::hopper {

using rows::RowView;

/// A tensor that TMA reads or writes in boxes of rows of one head.
struct Mapped {
  CUtensorMap map;
  int32_t rows = 1;        // of a batch entry
  int32_t box_blocks = 1;  // blocks of 64 columns of a box
  bool by_blocks = true;  // rows are whole blocks, at which boxes begin; else they begin at columns
};

/// Score terms and largest logits; null or 0 where there are none.
struct Terms {
  const Tokens* tokens = nullptr;  // of the tiles
  // Of the first query head, and from one to the next.
  const float* slopes = nullptr;
  float* max_logit = nullptr;
  int64_t slope_stride = 0, max_logit_stride = 0;
  // Scores in units of log2: cap_log2 tanh(product cap_rate / (2 log2(e))).
  float cap_log2 = 0, cap_rate = 0;
  bool wide_cap = false;  // so large that tanh must be exact near 0
  bool drops = false;
  uint32_t last_dropped = 0;  // the largest word that drops a pair
  uint32_t key0 = 0, key1 = 0;
  const uint32_t* key = nullptr;  // in their place
  float keep_factor = 1;
  uint32_t head_begin = 0;  // of the problem's heads
};

struct Parameters {
  Mapped q, k, v, o;
  RowView out;  // O: whole results of the operands' type, or f32 to be merged into
  RowView lse;
  const Block* blocks = nullptr;
  uint32_t* counter = nullptr;  // 0 before the first launch, and again after every launch
  int32_t count = 0;            // blocks
  int32_t units = 0;            // blocks x heads
  // Query heads, and those whose blocks are computed together; heads that share blocks count once.
  int32_t heads = 0;
  int32_t section_heads = 1;
  int32_t group = 1;
  int32_t group_offset = 0;
  float scale_log2 = 1;  // scale of scores x log2(e), above 0
  Terms terms;           // of kernels that take them
  bool stores_by_tma = false;
  bool wide = false;       // O may be reached in accesses of 16 bytes
  int32_t heads_log2 = 0;  // of heads that share blocks; of kernels that let them
};

/// Of a launch that brings keys and values itself: k and v of the base are gathered rows.
struct PullParameters : Parameters {
  Mapped own_k, own_v;
  const Start* starts = nullptr;    // of each of the blocks
  const int32_t* places = nullptr;  // see Turn
  const PullUnit* pull_units = nullptr;
  // 0 before the launch, and again after it.
  uint32_t* there = nullptr;     // a bit of each piece
  uint32_t* arrived = nullptr;   // units of each piece that is not there
  uint32_t* finished = nullptr;  // pullers that have read all
  uint32_t* through = nullptr;   // pullers and producers that need `there` no more
  uint32_t units_of_piece[kMostPieces] = {};
  char* gathered[2] = {};  // K, V
  int32_t pull_count = 0;
  int32_t piece_log2 = 0;
  int32_t loan_count = 0;
  int32_t lent_count = 0;
  Loan loans[2 * kMostLenders + 2] = {};  // behind the last one own K and V, without words
  Lent lent[2 * kMostLenders] = {};
};

static_assert(sizeof(PullParameters) <= 4096, "more than a kernel is passed");

}  // namespace longspan::hopper
