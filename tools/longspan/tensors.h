// Whole tensors and ranks' shards of them, in the problem's layout.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/tensor.h"
#include "memory.h"

namespace longspan::tool {

enum class Side { kQuery, kKey };

/// What the problem says about one of q, k, v, dout, o, lse, dq, dk, dv.
struct TensorSpec {
  Side side = Side::kQuery;
  DType dtype = DType::kF32;
  int64_t heads = 0;
  int64_t dim = 0;
};
TensorSpec tensor_spec(const Problem& problem, std::string_view name);

/// Owned memory and its view, whose data is set even where it has no element. A tensor that a
/// problem does not have is a Tensor{}: its view has no data.
struct Tensor {
  Memory memory;
  TensorView view;
};

/// Contents arbitrary. `batch` divides `rows`.
Tensor make_tensor(const TensorSpec& spec, Layout layout, int64_t batch, int64_t rows);
/// The tensor of all rows of the problem.
Tensor whole_tensor(const Problem& problem, const TensorSpec& spec);
/// The tensor of one rank's rows.
Tensor shard_tensor(const Problem& problem, const TensorSpec& spec, const Shard& shard);

/// Whether the problem has one of the tensors that are whole on every rank: one value per query
/// head (sink, dsink, alibi_slopes, max_logit) or the bias (bias, dbias).
bool has_side_tensor(const Problem& problem, std::string_view name);
/// One of them, contents arbitrary: [1, 1, heads, 1] in the accumulator type, or the bias as
/// Problem::bias_shape with memory [b, h, sq, skv], gradients in the accumulator type. Tensor{}
/// where the problem has none.
Tensor side_tensor(const Problem& problem, std::string_view name);
Tensor side_tensor(const Problem& problem, std::string_view name, DType dtype);

/// Sets the elements of a bias that no query and key of any sequence belong to.
void fill_unread_bias(const Problem& problem, const Tensor& bias, double value);

/// Batch of the whole tensor of a side: 1 when it is packed.
int64_t whole_batch(const Problem& problem, Side side);
int64_t whole_rows(const Problem& problem, Side side);
/// Shape as it stands in a file: [rows, heads, dim], [batch, seq, heads, dim] or
/// [seq, batch, heads, dim]; statistics (dim 1) without the last dimension.
std::vector<int64_t> file_shape(const Problem& problem, const TensorSpec& spec, bool statistics);
/// Likewise of a side tensor: [heads], or [b, h, sq, skv].
std::vector<int64_t> side_file_shape(const Problem& problem, std::string_view name);

/// Sets the rows of a whole tensor that hold no token to 0.
void clear_padding(const Tensor& whole_tensor, const std::vector<bool>& tokens);
/// Sets every byte to 0xff: NaN in every dtype.
void poison(const Tensor& tensor);
/// Sets the rows of a rank that hold no token to NaN. `indices`: where its rows lie in the whole
/// tensor, whose rows are `tokens`.
void poison_padding(const Tensor& shard_tensor, const std::vector<int64_t>& indices,
                    const std::vector<bool>& tokens);

/// shard row i = whole row indices[i].
void scatter_rows(const TensorView& whole, const TensorView& shard,
                  const std::vector<int64_t>& indices);
/// whole row indices[i] = shard row i.
void gather_rows(const TensorView& shard, const TensorView& whole,
                 const std::vector<int64_t>& indices);

/// For each row of a side: whether it holds a token.
std::vector<bool> token_rows(const Problem& problem, Side side);

}  // namespace longspan::tool
