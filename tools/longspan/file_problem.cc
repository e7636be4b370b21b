#include "file_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "file_lengths.h"
#include "file_sides.h"

namespace longspan::tool {
namespace {

constexpr std::array<std::string_view, 11> kInputs = {"q",
                                                      "k",
                                                      "v",
                                                      "dout",
                                                      "sink",
                                                      "bias",
                                                      "alibi_slopes",
                                                      "cu_seqlens_q",
                                                      "cu_seqlens_k",
                                                      "cu_seqlens_q_padded",
                                                      "cu_seqlens_k_padded"};
constexpr std::array<std::string_view, 9> kResults = {
    "o", "lse", "max_logit", "dq", "dk", "dv", "dsink", "dbias", "dropout_keep"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Error fault(const SafetensorsFile& file, const std::string& message) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}': {}", file.path(), message), "input"};
}

Status check_names(const SafetensorsFile& file) {
  for (const auto& [name, entry] : file.header().tensors) {
    if (contains(kInputs, name) || contains(kResults, name)) continue;
    return fault(file,
                 fmt::format("unknown tensor {}; inputs are {}; results {} may stand in the file "
                             "and are not used",
                             shown(name), fmt::join(kInputs, " "), fmt::join(kResults, " ")));
  }
  for (const char* name : {"q", "k", "v"}) {
    if (file.find(name) == nullptr) {
      return fault(file, fmt::format("tensor '{}' is missing; q, k and v are needed", name));
    }
  }
  return {};
}

/// A tensor's dimensions by name.
struct Dims {
  int64_t batch = 1;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  bool operator==(const Dims&) const = default;
};

Dims dims_of(const TensorEntry& entry, Layout layout) {
  const std::vector<int64_t>& s = entry.shape;
  if (layout == Layout::kTHD) return {1, s[0], s[1], s[2]};
  if (layout == Layout::kBSHD) return {s[0], s[1], s[2], s[3]};
  return {s[1], s[0], s[2], s[3]};
}

Status check_type_and_rank(const SafetensorsFile& file) {
  const TensorEntry& q = *file.find("q");
  if (q.shape.size() != 3 && q.shape.size() != 4) {
    return fault(file,
                 fmt::format("tensor 'q' has shape {}; [tokens, heads, dim] (thd), [batch, seq, "
                             "heads, dim] (bshd) or [seq, batch, heads, dim] (sbhd) is needed",
                             shape_text(q.shape)));
  }
  LONGSPAN_TRY(const DType dtype, tensor_dtype(file, "q"));
  for (const char* name : {"k", "v", "dout"}) {
    const TensorEntry* entry = file.find(name);
    if (entry == nullptr) continue;
    LONGSPAN_TRY(const DType other, tensor_dtype(file, name));
    if (other != dtype) {
      return fault(file,
                   fmt::format("tensor '{}' has dtype {} but 'q' has {}; all inputs need one dtype",
                               name, tool::name(entry->type), tool::name(q.type)));
    }
    if (entry->shape.size() != q.shape.size()) {
      return fault(file, fmt::format("tensor '{}' has shape {} but 'q' has {}; both need as many "
                                     "dimensions",
                                     name, shape_text(entry->shape), shape_text(q.shape)));
    }
  }
  return {};
}

Result<Layout> file_layout(const SafetensorsFile& file, const ProblemFields& fields) {
  const TensorEntry& q = *file.find("q");
  const auto given = fields.values.find("layout");
  const bool packed = q.shape.size() == 3;
  if (given == fields.values.end()) return packed ? Layout::kTHD : Layout::kBSHD;
  if ((given->second == "thd") != packed) {
    return fault(file,
                 fmt::format("layout={} contradicts tensor 'q' of shape {}: {}; remove the key or "
                             "reshape the tensor",
                             given->second, shape_text(q.shape),
                             packed ? "three dimensions are layout thd"
                                    : "four dimensions are layout bshd or sbhd"));
  }
  return packed ? Layout::kTHD : given->second == "sbhd" ? Layout::kSBHD : Layout::kBSHD;
}

Status expect(const SafetensorsFile& file, const char* name, const Dims& actual,
              const Dims& expected, std::string_view reason) {
  if (actual == expected) return {};
  return fault(
      file, fmt::format("tensor '{}' has {} batch x {} seq x {} heads x {} dim, but {} need {} x "
                        "{} x {} x {}",
                        name, actual.batch, actual.seq, actual.heads, actual.dim, reason,
                        expected.batch, expected.seq, expected.heads, expected.dim));
}

Status check_shapes(const SafetensorsFile& file, Layout layout) {
  const Dims q = dims_of(*file.find("q"), layout);
  const Dims k = dims_of(*file.find("k"), layout);
  const Dims v = dims_of(*file.find("v"), layout);
  LONGSPAN_CHECK_OK(
      expect(file, "k", k, {q.batch, k.seq, k.heads, q.dim}, "the batch and dim of 'q'"));
  LONGSPAN_CHECK_OK(
      expect(file, "v", v, {k.batch, k.seq, k.heads, v.dim}, "the batch, seq and heads of 'k'"));
  if (file.find("dout") == nullptr) return {};
  return expect(file, "dout", dims_of(*file.find("dout"), layout), {q.batch, q.seq, q.heads, v.dim},
                "'q' and the dim of 'v'");
}

/// Sets a key that the tensors determine; a different value in the text is an error.
Status determine(const SafetensorsFile& file, ProblemFields& fields, const char* key,
                 const std::string& value) {
  const auto given = fields.values.find(key);
  if (given != fields.values.end() && given->second != value) {
    return fault(
        file, fmt::format("{}={} contradicts the file, whose tensors have {}={}; remove the key or "
                          "name the right file",
                          key, given->second, key, value));
  }
  fields.values[key] = value;
  return {};
}

}  // namespace

std::span<const std::string_view> result_names() { return kResults; }

Result<DType> tensor_dtype(const SafetensorsFile& file, const std::string& name) {
  const FileType type = file.find(name)->type;
  switch (type) {
    case FileType::kF64: return DType::kF64;
    case FileType::kF32: return DType::kF32;
    case FileType::kF16: return DType::kF16;
    case FileType::kBF16: return DType::kBF16;
    default:
      return fault(file, fmt::format("tensor '{}' has dtype {}; F64, F32, F16 or BF16 is needed",
                                     name, tool::name(type)));
  }
}

Result<Problem> problem_of_file(const SafetensorsFile& file, const ProblemFields& given) {
  LONGSPAN_CHECK_OK(check_names(file));
  LONGSPAN_CHECK_OK(check_type_and_rank(file));
  LONGSPAN_TRY(const Layout layout, file_layout(file, given));
  LONGSPAN_CHECK_OK(check_shapes(file, layout));
  LONGSPAN_TRY(const DType dtype, tensor_dtype(file, "q"));
  const Dims q = dims_of(*file.find("q"), layout);
  const Dims k = dims_of(*file.find("k"), layout);
  const Dims v = dims_of(*file.find("v"), layout);

  ProblemFields fields = given;
  LONGSPAN_CHECK_OK(determine(file, fields, "dtype", std::string(name(dtype))));
  LONGSPAN_CHECK_OK(determine(file, fields, "heads", fmt::format("{}/{}", q.heads, k.heads)));
  LONGSPAN_CHECK_OK(determine(file, fields, "dim", fmt::format("{}", q.dim)));
  LONGSPAN_CHECK_OK(determine(file, fields, "dim_v", fmt::format("{}", v.dim)));
  fields.values["layout"] = name(layout);
  const FileSide query = {.cumulative = "cu_seqlens_q",
                          .tensor = "q",
                          .lengths = "lengths",
                          .padded = "padded",
                          .tokens = "tokens",
                          .batch = q.batch,
                          .seq = q.seq,
                          .packed = layout == Layout::kTHD};
  const FileSide key = {.cumulative = "cu_seqlens_k",
                        .tensor = "k",
                        .lengths = "kv_lengths",
                        .padded = "kv_padded",
                        .tokens = "kv_tokens",
                        .batch = k.batch,
                        .seq = k.seq,
                        .packed = layout == Layout::kTHD};
  LONGSPAN_TRY(fields, with_lengths(file, query, given, std::move(fields)));
  LONGSPAN_TRY(fields, with_lengths(file, key, given, std::move(fields)));
  auto problem = make_problem(fields);
  if (!problem.ok()) return fault(file, problem.error().message);
  return with_sides(file, given, *std::move(problem));
}

}  // namespace longspan::tool
