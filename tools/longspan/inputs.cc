#include "inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "file_problem.h"
#include "random.h"

namespace longspan::tool {
namespace {

Result<uint64_t> metadata_seed(const SafetensorsFile& file) {
  const auto found = file.header().metadata.find("seed");
  if (found == file.header().metadata.end()) return uint64_t{0};
  const std::string& text = found->second;
  uint64_t seed = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (code == std::errc() && end == text.data() + text.size() && !text.empty()) return seed;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}': metadata seed {} is no whole number from 0 to 2^64 - 1",
                           file.path(), shown(text)),
               "input"};
}

Result<ProblemFields> metadata_fields(const SafetensorsFile& file) {
  const auto found = file.header().metadata.find("problem");
  if (found == file.header().metadata.end()) return ProblemFields{};
  auto fields = parse_fields(found->second);
  if (fields.ok()) return fields;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}': metadata problem: {}", file.path(), fields.error().message),
               "input"};
}

double input_bytes(const Problem& problem) {
  double bytes = 0;
  for (const char* name : {"q", "k", "v", "dout"}) {
    const TensorSpec spec = tensor_spec(problem, name);
    bytes += static_cast<double>(whole_rows(problem, spec.side)) *
             static_cast<double>(spec.heads * spec.dim * size_of(spec.dtype));
  }
  return bytes;
}

Tensor drawn(const Problem& problem, const char* name, uint64_t seed, Draw draw) {
  const TensorSpec spec = tensor_spec(problem, name);
  Tensor tensor = whole_tensor(problem, spec);
  fill_normal(tensor.view, seed, draw);
  clear_padding(tensor, token_rows(problem, spec.side));
  return tensor;
}

Result<Tensor> input(const Source& source, const char* name, Draw draw) {
  const TensorEntry* entry = source.file ? source.file->find(name) : nullptr;
  if (entry == nullptr) return drawn(source.problem, name, source.seed, draw);
  Tensor tensor = whole_tensor(source.problem, tensor_spec(source.problem, name));
  LONGSPAN_TRY(tensor.memory, source.file->read(*entry));
  tensor.view.data = tensor.memory.data();
  return tensor;
}

std::vector<std::string> notes_on(const Source& source) {
  if (!source.file) return {fmt::format("q, k, v and dout are drawn from seed {}", source.seed)};
  std::vector<std::string> notes;
  if (source.file->find("dout") == nullptr) {
    notes.push_back(fmt::format("the file has no dout; it is drawn from seed {}", source.seed));
  }
  std::vector<std::string> unused;
  for (const char* name :
       {"o", "lse", "dq", "dk", "dv", "dsink", "dbias", "max_logit", "dropout_keep"}) {
    if (source.file->find(name) != nullptr) unused.emplace_back(name);
  }
  if (!unused.empty()) {
    notes.push_back(
        fmt::format("results in the file ({}) are present, not used", fmt::join(unused, " ")));
  }
  return notes;
}

}  // namespace

Result<Source> resolve_source(const std::string& text, const std::string& path,
                              std::optional<uint64_t> seed) {
  LONGSPAN_TRY(const ProblemFields given, parse_fields(text));
  Source source;
  if (path.empty()) {
    if (text.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   "nothing to compute: give --problem TEXT or --input FILE", "usage"};
    }
    LONGSPAN_TRY(source.problem, make_problem(given));
    source.seed = seed.value_or(0);
    return source;
  }
  LONGSPAN_TRY(source.file, SafetensorsFile::open(path));
  LONGSPAN_TRY(const ProblemFields in_file, metadata_fields(*source.file));
  LONGSPAN_TRY(source.problem, problem_of_file(*source.file, in_file.merged(given)));
  LONGSPAN_TRY(const uint64_t file_seed, metadata_seed(*source.file));
  source.seed = seed.value_or(file_seed);
  return source;
}

Result<Inputs> make_inputs(const Source& source) {
  LONGSPAN_CHECK_OK(fits_in_memory(input_bytes(source.problem), "q, k, v and dout"));
  Inputs inputs;
  inputs.problem = source.problem;
  inputs.seed = source.seed;
  LONGSPAN_TRY(inputs.q, input(source, "q", Draw::kQ));
  LONGSPAN_TRY(inputs.k, input(source, "k", Draw::kK));
  LONGSPAN_TRY(inputs.v, input(source, "v", Draw::kV));
  LONGSPAN_TRY(inputs.dout, input(source, "dout", Draw::kDout));
  inputs.notes = notes_on(source);
  return inputs;
}

}  // namespace longspan::tool
