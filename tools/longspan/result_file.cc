#include "result_file.h"

#include <fmt/format.h>

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dropout_keep.h"
#include "longspan/version.h"
#include "safetensors.h"

namespace longspan::tool {
namespace {

FileType file_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return FileType::kF64;
    case DType::kF32: return FileType::kF32;
    case DType::kF16: return FileType::kF16;
    case DType::kBF16: return FileType::kBF16;
  }
  return FileType::kF32;
}

NamedTensor of_rows(const Problem& problem, std::string_view name, const Tensor& tensor) {
  return {.name = std::string(name),
          .type = file_type(tensor.view.dtype),
          .shape = file_shape(problem, tensor_spec(problem, name), name == "lse"),
          .bytes = {tensor.memory.data(), tensor.memory.size()}};
}

NamedTensor of_side(const Problem& problem, std::string_view name, const Tensor& tensor) {
  return {.name = std::string(name),
          .type = file_type(tensor.view.dtype),
          .shape = side_file_shape(problem, name),
          .bytes = {tensor.memory.data(), tensor.memory.size()}};
}

std::vector<NamedTensor> inputs_and_results(const Inputs& inputs, const GroupResults& results) {
  const Problem& problem = inputs.problem;
  std::vector<NamedTensor> tensors = {of_rows(problem, "q", inputs.q),
                                      of_rows(problem, "k", inputs.k),
                                      of_rows(problem, "v", inputs.v)};
  if (inputs.dout.view.data != nullptr) {
    tensors.push_back(of_rows(problem, "dout", inputs.dout));
  }
  for (const auto& [name, tensor] : {std::pair{"sink", &inputs.sink},
                                     {"alibi_slopes", &inputs.slopes},
                                     {"bias", &inputs.bias}}) {
    if (tensor->view.data != nullptr) tensors.push_back(of_side(problem, name, *tensor));
  }
  for (const auto& [name, tensor] : present(results)) {
    tensors.push_back(has_rows(name) ? of_rows(problem, name, *tensor)
                                     : of_side(problem, name, *tensor));
  }
  return tensors;
}

std::vector<int64_t> cumulative(const Problem& problem, int64_t Sequence::*size) {
  std::vector<int64_t> sums = {0};
  for (const Sequence& sequence : problem.lengths.sequences) {
    sums.push_back(sums.back() + sequence.*size);
  }
  return sums;
}

/// Owns the numbers that tensors of a file refer to.
struct Cumulative {
  std::string name;
  std::vector<int64_t> wide;
  std::vector<int32_t> narrow;  // when all fit

  Cumulative(std::string tensor, std::vector<int64_t> values)
      : name(std::move(tensor)), wide(std::move(values)) {
    if (wide.back() <= std::numeric_limits<int32_t>::max()) narrow.assign(wide.begin(), wide.end());
  }
  NamedTensor tensor() const {
    return {.name = name,
            .type = narrow.empty() ? FileType::kI64 : FileType::kI32,
            .shape = {static_cast<int64_t>(wide.size())},
            .bytes =
                narrow.empty() ? std::as_bytes(std::span(wide)) : std::as_bytes(std::span(narrow))};
  }
};

std::vector<Cumulative> all_cumulative(const Problem& problem) {
  const std::vector<int64_t> q = cumulative(problem, &Sequence::q_length);
  const std::vector<int64_t> k = cumulative(problem, &Sequence::k_length);
  const std::vector<int64_t> q_padded = cumulative(problem, &Sequence::q_extent);
  const std::vector<int64_t> k_padded = cumulative(problem, &Sequence::k_extent);
  std::vector<Cumulative> all;
  all.emplace_back("cu_seqlens_q", q);
  all.emplace_back("cu_seqlens_k", k);
  if (q_padded != q) all.emplace_back("cu_seqlens_q_padded", q_padded);
  if (k_padded != k) all.emplace_back("cu_seqlens_k_padded", k_padded);
  return all;
}

}  // namespace

bool writes_dropout_keep(const Problem& problem) {
  return problem.dropout != 0 && keep_bytes(problem) <= kMostKeepBytes;
}

Status write_results(OutputFile& file, const Inputs& inputs, const GroupResults& results) {
  const Problem& problem = inputs.problem;
  std::vector<NamedTensor> tensors = inputs_and_results(inputs, results);
  std::vector<std::byte> keep;
  if (writes_dropout_keep(problem)) {
    keep = dropout_keep(problem);
    tensors.push_back({.name = "dropout_keep",
                       .type = FileType::kU8,
                       .shape = {static_cast<int64_t>(keep.size())},
                       .bytes = keep});
  }
  const std::vector<Cumulative> sums = all_cumulative(problem);
  for (const Cumulative& sum : sums) tensors.push_back(sum.tensor());
  LONGSPAN_CHECK_OK(write_safetensors(file, tensors,
                                      {{"problem", problem.text()},
                                       {"seed", fmt::format("{}", inputs.seed)},
                                       {"longspan", LONGSPAN_VERSION}}));
  return file.commit();
}

}  // namespace longspan::tool
