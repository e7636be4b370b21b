// What the backward kernels are launched with.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/row_statistics.h"
#include "providers/hopper/forward/parameters.h"

namespace longspan::hopper {

/// The lists of a chunk, its heads, and scratch.
struct ChunkParameters {
  const Region* regions = nullptr;
  const Line* lines = nullptr;
  char* p = nullptr;  // blocks of scratch
  char* ds = nullptr;
  int32_t head_blocks = 0;  // of a head
  int32_t first_head = 0;   // query head
  int32_t first_key_head = 0;
  int32_t group = 1, group_offset = 0;

  LONGSPAN_HOST_DEVICE int32_t key_head(int32_t query_head) const {
    return (query_head + group_offset) / group;
  }
};

/// Rows that TMA reads.
struct Operand {
  Mapped tensor;
  int32_t first_row = 0;  // of the views, which the tensor's first row, and first head, stand for
  int32_t first_head = 0;
};

/// P and dS of a chunk.
struct ScoreParameters {
  Operand q, k, v, dout;  // boxes of 64 columns
  ChunkParameters chunk;
  const RowStatistics* statistics = nullptr;
  int64_t rows = 0;  // of a head's statistics
  const ScoreItem* items = nullptr;
  int32_t count = 0;                  // items
  int32_t units = 0;                  // items x heads
  int32_t steps_qk = 0, steps_v = 0;  // of 64 columns
  float scale_log2 = 1;               // scale of scores x log2(e), not 0
  float hidden = 0;       // score of hidden pairs: infinite, and negative once it is scaled
  Terms terms;            // of kernels that take them; its tokens are those of the chunk's regions
  float cap_inverse = 0;  // 1 / terms.cap_log2
};

/// One of dQ, dK and dV.
struct GradientRows {
  RowView sums;    // f32
  RowView result;  // of the operands' type
  float scale = 1;
  int32_t first_row = 0;  // which the first row, and the first head, of `sums` stand for
  int32_t first_head = 0;
  bool wide_sums = false;    // may be reached in accesses of 8 bytes
  bool wide_result = false;  // of 16 bytes
};

/// dV of a chunk, and its dS, where P is not written.
struct ValueParameters {
  Operand q, k, v, dout;  // boxes of 128 rows x 64 columns
  ChunkParameters chunk;
  const RowStatistics* statistics = nullptr;
  int64_t rows = 0;  // of a head's statistics
  GradientRows values;
  const GradientItem* items = nullptr;  // of dV
  uint32_t* counter = nullptr;          // as in GradientParameters
  uint32_t* turns = nullptr;   // two for each sum in parts, 0 before every launch and after it
  int32_t units = 0;           // items
  int32_t only_key_head = -1;  // as in GradientParameters
  float scale_log2 = 1;        // as in ScoreParameters
  float hidden = 0;
};

/// Gradients of a chunk, from P and dS.
struct GradientParameters {
  Operand operands[kGradients];  // K, Q and dout: what dQ, dK and dV are sums of
  ChunkParameters chunk;
  GradientRows rows[kGradients];
  const GradientItem* items = nullptr;
  uint32_t* counter = nullptr;  // 0 before the first launch, and again after every launch
  int32_t units = 0;            // items
  int32_t only_key_head = -1;   // of the launch's, whose items alone are computed; negative: all
};

}  // namespace longspan::hopper
