#include "file_sides.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "file_problem.h"

namespace longspan::tool {
namespace {

Error fault(const SafetensorsFile& file, const std::string& message) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}': {}", file.path(), message), "input"};
}

/// A key beside a tensor that asks for another value.
Status agree(const SafetensorsFile& file, const ProblemFields& given, const char* key,
             std::string_view wanted, const char* tensor) {
  const auto found = given.values.find(key);
  if (found == given.values.end() || found->second == wanted) return {};
  return fault(file, fmt::format("{}={} contradicts tensor '{}', which means {}={}; remove the key "
                                 "or the tensor",
                                 key, found->second, tensor, key, wanted));
}

Status check_per_head(const SafetensorsFile& file, const Problem& problem, const char* name) {
  const TensorEntry& entry = *file.find(name);
  const bool wide = problem.dtype == DType::kF64;
  if (entry.type != FileType::kF32 && !(wide && entry.type == FileType::kF64)) {
    return fault(file, fmt::format("tensor '{}' has dtype {}; {} is needed", name,
                                   tool::name(entry.type), wide ? "F32 or F64" : "F32"));
  }
  if (entry.shape == std::vector<int64_t>{problem.heads_q}) return {};
  return fault(file, fmt::format("tensor '{}' has shape {}; [{}], one value per query head, is "
                                 "needed",
                                 name, shape_text(entry.shape), problem.heads_q));
}

std::vector<int64_t> bias_shape(Problem problem, Bias bias) {
  problem.bias = bias;
  const std::array<int64_t, 4> shape = problem.bias_shape();
  return {shape.begin(), shape.end()};
}

/// The kind of bias that a tensor of four dimensions is.
Bias bias_of(const Problem& problem, const std::vector<int64_t>& shape) {
  const bool one_row = shape[2] == 1 && bias_shape(problem, Bias::k11)[2] > 1;
  if (shape[0] == 1 && shape[1] == 1) return one_row ? Bias::k111S : Bias::k11;
  if (shape[1] == 1) return Bias::kB1;
  return shape[0] == 1 ? Bias::k1H : Bias::kBH;
}

Result<Bias> file_bias(const SafetensorsFile& file, const ProblemFields& given,
                       const Problem& problem) {
  const TensorEntry& entry = *file.find("bias");
  LONGSPAN_TRY(const DType dtype, tensor_dtype(file, "bias"));
  if (dtype != problem.dtype) {
    return fault(file, fmt::format("tensor 'bias' has dtype {} but 'q' has {}; both need one dtype",
                                   tool::name(entry.type), tool::name(file.find("q")->type)));
  }
  if (given.values.contains("bias")) {
    if (problem.bias != Bias::kNone && entry.shape == bias_shape(problem, problem.bias)) {
      return problem.bias;
    }
    const std::string needed = problem.bias == Bias::kNone
                                   ? "has none"
                                   : "needs " + shape_text(bias_shape(problem, problem.bias));
    return fault(file, fmt::format("bias={} contradicts tensor 'bias' of shape {}: the key {}; "
                                   "remove the key or the tensor",
                                   name(problem.bias), shape_text(entry.shape), needed));
  }
  if (entry.shape.size() == 4) {
    const Bias bias = bias_of(problem, entry.shape);
    if (entry.shape == bias_shape(problem, bias)) return bias;
  }
  const std::vector<int64_t> whole = bias_shape(problem, Bias::kBH);
  return fault(
      file, fmt::format("tensor 'bias' has shape {}; [{} or 1, {} or 1, {}, {}] (batch, "
                        "heads, sq, skv) or [1, 1, 1, {}] is needed",
                        shape_text(entry.shape), whole[0], whole[1], whole[2], whole[3], whole[3]));
}

}  // namespace

Result<Problem> with_sides(const SafetensorsFile& file, const ProblemFields& given,
                           Problem problem) {
  if (file.find("sink") != nullptr) {
    LONGSPAN_CHECK_OK(agree(file, given, "sink", name(Sink::kLearnable), "sink"));
    LONGSPAN_CHECK_OK(check_per_head(file, problem, "sink"));
    problem.sink = Sink::kLearnable;
  }
  if (file.find("alibi_slopes") != nullptr) {
    LONGSPAN_CHECK_OK(agree(file, given, "alibi", name(Alibi::kDefault), "alibi_slopes"));
    LONGSPAN_CHECK_OK(check_per_head(file, problem, "alibi_slopes"));
    problem.alibi = Alibi::kDefault;
  }
  if (file.find("bias") != nullptr) {
    LONGSPAN_TRY(problem.bias, file_bias(file, given, problem));
  }
  return validated(std::move(problem));
}

}  // namespace longspan::tool
