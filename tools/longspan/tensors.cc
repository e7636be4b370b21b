#include "tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "numbers.h"

namespace longspan::tool {
namespace {

void copy_row(const TensorView& from, int64_t from_row, const TensorView& to, int64_t to_row) {
  if (from.heads * from.dim == 0) return;
  const int64_t size = size_of(from.dtype);
  std::memcpy(static_cast<std::byte*>(to.data) + to.offset(to_row, 0) * size,
              static_cast<const std::byte*>(from.data) + from.offset(from_row, 0) * size,
              static_cast<size_t>(from.heads * from.dim * size));
}

bool is_bias(std::string_view name) { return name == "bias" || name == "dbias"; }

/// Memory of `bytes`; the view's data is never null.
void allocate(Tensor& tensor, int64_t bytes) {
  alignas(64) static std::byte no_element;
  tensor.memory = Memory(static_cast<size_t>(bytes));
  tensor.view.data = bytes > 0 ? tensor.memory.data() : &no_element;
}

/// How many columns of each row of a bias belong to keys, in one batch entry.
std::vector<int64_t> read_columns(const Problem& problem, const TensorView& bias, int64_t batch) {
  std::vector<int64_t> columns(static_cast<size_t>(bias.seq), 0);
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (bias.batch > 1 && static_cast<int64_t>(i) != batch) continue;
    if (sequences[i].q_length == 0) continue;
    const int64_t last = problem.bias == Bias::k111S ? 0 : sequences[i].q_length - 1;
    int64_t& longest = columns[static_cast<size_t>(last)];
    longest = std::max(longest, sequences[i].k_length);
  }
  for (size_t q = columns.size(); q-- > 1;) columns[q - 1] = std::max(columns[q - 1], columns[q]);
  return columns;
}

}  // namespace

TensorSpec tensor_spec(const Problem& problem, std::string_view name) {
  const DType statistics = accumulator(problem.dtype);
  if (name == "q" || name == "dq") {
    return {Side::kQuery, problem.dtype, problem.heads_q, problem.dim_qk};
  }
  if (name == "k" || name == "dk") {
    return {Side::kKey, problem.dtype, problem.heads_kv, problem.dim_qk};
  }
  if (name == "v" || name == "dv") {
    return {Side::kKey, problem.dtype, problem.heads_kv, problem.dim_v};
  }
  if (name == "lse") return {Side::kQuery, statistics, problem.heads_q, 1};
  return {Side::kQuery, problem.dtype, problem.heads_q, problem.dim_v};  // o, dout
}

Tensor make_tensor(const TensorSpec& spec, Layout layout, int64_t batch, int64_t rows) {
  Tensor tensor;
  const int64_t row = spec.heads * spec.dim;
  const int64_t seq = batch == 0 ? 0 : rows / batch;
  const bool batch_inside = layout == Layout::kSBHD;
  tensor.view = {.data = nullptr,
                 .dtype = spec.dtype,
                 .batch = batch,
                 .seq = seq,
                 .heads = spec.heads,
                 .dim = spec.dim,
                 .stride_batch = batch_inside ? row : seq * row,
                 .stride_seq = batch_inside ? batch * row : row,
                 .stride_head = spec.dim};
  allocate(tensor, rows * row * size_of(spec.dtype));
  return tensor;
}

bool has_side_tensor(const Problem& problem, std::string_view name) {
  if (is_bias(name)) return problem.bias != Bias::kNone;
  if (name == "alibi_slopes") return problem.alibi != Alibi::kNone;
  if (name == "max_logit") return problem.max_logit;
  return problem.sink == Sink::kLearnable;  // sink, dsink
}

Tensor side_tensor(const Problem& problem, std::string_view name) {
  return side_tensor(problem, name, name == "bias" ? problem.dtype : accumulator(problem.dtype));
}

Tensor side_tensor(const Problem& problem, std::string_view name, DType dtype) {
  if (!has_side_tensor(problem, name)) return {};
  if (!is_bias(name)) {
    return make_tensor({Side::kQuery, dtype, problem.heads_q, 1}, Layout::kTHD, 1, 1);
  }
  const auto [batch, heads, sq, skv] = problem.bias_shape();
  Tensor tensor;
  tensor.view = {.data = nullptr,
                 .dtype = dtype,
                 .batch = batch,
                 .seq = sq,
                 .heads = heads,
                 .dim = skv,
                 .stride_batch = heads * sq * skv,
                 .stride_seq = skv,
                 .stride_head = sq * skv};
  allocate(tensor, batch * heads * sq * skv * size_of(dtype));
  return tensor;
}

int64_t whole_rows(const Problem& problem, Side side) {
  return side == Side::kQuery ? problem.lengths.tokens_q : problem.lengths.tokens_k;
}

int64_t whole_batch(const Problem& problem, Side side) {
  const auto batch = static_cast<int64_t>(problem.lengths.sequences.size());
  if (problem.layout == Layout::kTHD || batch == 0) return 1;
  const Sequence& first = problem.lengths.sequences.front();
  const int64_t extent = side == Side::kQuery ? first.q_extent : first.k_extent;
  return extent * batch == whole_rows(problem, side) ? batch : 1;
}

Tensor whole_tensor(const Problem& problem, const TensorSpec& spec) {
  return make_tensor(spec, problem.layout, whole_batch(problem, spec.side),
                     whole_rows(problem, spec.side));
}

Tensor shard_tensor(const Problem& problem, const TensorSpec& spec, const Shard& shard) {
  return make_tensor(spec, problem.layout, shard.batch, shard.rows);
}

std::vector<int64_t> file_shape(const Problem& problem, const TensorSpec& spec, bool statistics) {
  const int64_t rows = whole_rows(problem, spec.side);
  const int64_t batch = whole_batch(problem, spec.side);
  std::vector<int64_t> shape;
  if (problem.layout == Layout::kTHD) {
    shape = {rows, spec.heads};
  } else if (problem.layout == Layout::kBSHD) {
    shape = {batch, rows / batch, spec.heads};
  } else {
    shape = {rows / batch, batch, spec.heads};
  }
  if (!statistics) shape.push_back(spec.dim);
  return shape;
}

void fill_unread_bias(const Problem& problem, const Tensor& bias, double value) {
  const TensorView& view = bias.view;
  std::vector<int64_t> read;
  for (int64_t row = 0; row < view.rows(); ++row) {
    const int64_t q = row % view.seq;
    if (q == 0) read = read_columns(problem, view, row / view.seq);
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t k = read[static_cast<size_t>(q)]; k < view.dim; ++k) {
        store(view, row, head, k, value);
      }
    }
  }
}

std::vector<int64_t> side_file_shape(const Problem& problem, std::string_view name) {
  if (!is_bias(name)) return {problem.heads_q};
  const std::array<int64_t, 4> shape = problem.bias_shape();
  return {shape.begin(), shape.end()};
}

void poison(const Tensor& tensor) {
  if (tensor.memory.size() > 0) std::memset(tensor.memory.data(), 0xff, tensor.memory.size());
}

void poison_padding(const Tensor& shard_tensor, const std::vector<int64_t>& indices,
                    const std::vector<bool>& tokens) {
  const TensorView& view = shard_tensor.view;
  const int64_t size = size_of(view.dtype);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (tokens[static_cast<size_t>(indices[i])]) continue;
    std::memset(static_cast<std::byte*>(view.data) + view.offset(static_cast<int64_t>(i), 0) * size,
                0xff, static_cast<size_t>(view.heads * view.dim * size));
  }
}

void clear_padding(const Tensor& tensor, const std::vector<bool>& tokens) {
  const TensorView& view = tensor.view;
  const int64_t size = size_of(view.dtype);
  for (int64_t row = 0; row < view.rows(); ++row) {
    if (tokens[static_cast<size_t>(row)]) continue;
    std::memset(static_cast<std::byte*>(view.data) + view.offset(row, 0) * size, 0,
                static_cast<size_t>(view.heads * view.dim * size));
  }
}

void scatter_rows(const TensorView& whole, const TensorView& shard,
                  const std::vector<int64_t>& indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    copy_row(whole, indices[i], shard, static_cast<int64_t>(i));
  }
}

void gather_rows(const TensorView& shard, const TensorView& whole,
                 const std::vector<int64_t>& indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    copy_row(shard, static_cast<int64_t>(i), whole, indices[i]);
  }
}

std::vector<bool> token_rows(const Problem& problem, Side side) {
  std::vector<bool> tokens(static_cast<size_t>(whole_rows(problem, side)), false);
  for (const Sequence& sequence : problem.lengths.sequences) {
    const int64_t offset = side == Side::kQuery ? sequence.q_offset : sequence.k_offset;
    const int64_t length = side == Side::kQuery ? sequence.q_length : sequence.k_length;
    for (int64_t i = 0; i < length; ++i) tokens[static_cast<size_t>(offset + i)] = true;
  }
  return tokens;
}

}  // namespace longspan::tool
