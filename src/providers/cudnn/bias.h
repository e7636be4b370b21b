// A bias in the form that cuDNN's graphs read, and the gradient of it that they write.
#pragma once

#include <cstdint>

#include "longspan/provider.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// Of the packed bias of one execution, without heads or rows where the problem has none.
BiasShape bias_shape(const TileProblem& problem, const Group& group);

/// Most bytes of the packed bias of one execution, and of its packed gradient.
int64_t bias_bytes(const TileProblem& problem);
int64_t dbias_bytes(const TileProblem& problem);

/// Copies the elements of an entry's visible pairs; all others are 0, and not read.
struct BiasPack {
  Entry entry;
  TensorView bias;
  int64_t head_begin = 0;  // of the problem's query heads: the first of the execution
  BiasShape shape;
  int64_t keys = 0;  // declared
  void* to = nullptr;
};

Status pack_bias(const BiasPack& pack, Stream stream);

/// Adds cuDNN's gradient, [1, heads, rows, keys], to the caller's: heads and queries that
/// share an element are added up in float32, in an order of their own. Elements of hidden pairs are
/// not read.
struct BiasGradient {
  Entry entry;
  TensorView dbias;  // f32
  int64_t head_begin = 0;
  DType dtype = DType::kBF16;  // of the packed gradient
  int64_t heads = 0, rows = 0, keys = 0;
  const void* packed = nullptr;
};

Status add_bias_gradient(const BiasGradient& gradient, Stream stream);

}  // namespace longspan::cudnn
