// Attention by cuDNN alone, as a program that links nothing of longspan's provider would call it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "longspan/provider.h"

namespace longspan::testing {

/// One bf16 sequence in a packed tensor [rows, heads, dim] each.
struct DirectShape {
  Direction direction = Direction::kForward;
  int64_t rows = 0;
  int64_t heads_q = 0, heads_kv = 0;
  int64_t dim_qk = 0, dim_v = 0;
  bool causal = false;
};

/// q, k, v, o, lse [rows, heads_q]; in backward then dout, dq, dk, dv.
using DirectTensors = std::array<void*, 9>;

class DirectGraph {
 public:
  virtual ~DirectGraph() = default;
  virtual size_t workspace_bytes() const = 0;
  /// Enqueues; throws std::runtime_error with cuDNN's text on failure.
  virtual void execute(const DirectTensors& tensors, void* workspace, Stream stream) = 0;
};

/// cuDNN must have been opened by the provider. Throws as above.
std::unique_ptr<DirectGraph> make_direct_graph(const DirectShape& shape, double scale);

}  // namespace longspan::testing
