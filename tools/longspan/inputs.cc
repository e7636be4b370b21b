#include "inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "file_problem.h"
#include "numbers.h"
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

void seed_dropout(Source& source) {
  if (source.problem.dropout == 0 || source.problem.dropout_seed) return;
  source.problem.dropout_seed = source.seed;
}

double input_bytes(const Problem& problem) {
  double bytes = 0;
  for (const char* name : {"q", "k", "v", "dout"}) {
    const TensorSpec spec = tensor_spec(problem, name);
    bytes += static_cast<double>(whole_rows(problem, spec.side)) *
             static_cast<double>(spec.heads * spec.dim * size_of(spec.dtype));
  }
  double bias = static_cast<double>(size_of(problem.dtype));
  for (const int64_t extent : problem.bias_shape()) bias *= static_cast<double>(extent);
  return bytes + bias;
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
  if (tensor.memory.size() == 0) return tensor;
  LONGSPAN_TRY(tensor.memory, source.file->read(*entry));
  tensor.view.data = tensor.memory.data();
  return tensor;
}

/// FP32 or float64 of the file in the type of `tensor`.
Status read_widened(const SafetensorsFile& file, const char* name, Tensor& tensor) {
  LONGSPAN_TRY(const DType dtype, tensor_dtype(file, name));
  LONGSPAN_TRY(const Memory memory, file.read(*file.find(name)));
  for (int64_t head = 0; head < tensor.view.heads; ++head) {
    store(tensor.view, 0, head, 0, load(memory.data(), dtype, head));
  }
  return {};
}

Result<Tensor> sink_input(const Source& source) {
  Tensor sink = side_tensor(source.problem, "sink");
  if (sink.view.data == nullptr) return sink;
  if (source.file && source.file->find("sink") != nullptr) {
    LONGSPAN_CHECK_OK(read_widened(*source.file, "sink", sink));
    return sink;
  }
  fill_normal(sink.view, source.seed, Draw::kSink);
  for (int64_t head = 0; head < sink.view.heads; ++head) {
    store(sink.view, 0, head, 0, static_cast<float>(load(sink.view, 0, head, 0)));
  }
  return sink;
}

Result<Tensor> slopes_input(const Source& source) {
  Tensor slopes = side_tensor(source.problem, "alibi_slopes");
  if (slopes.view.data == nullptr) return slopes;
  if (source.file && source.file->find("alibi_slopes") != nullptr) {
    LONGSPAN_CHECK_OK(read_widened(*source.file, "alibi_slopes", slopes));
    return slopes;
  }
  const std::vector<double> standard = default_alibi_slopes(source.problem.heads_q);
  for (int64_t head = 0; head < slopes.view.heads; ++head) {
    store(slopes.view, 0, head, 0, standard[static_cast<size_t>(head)]);
  }
  return slopes;
}

Result<Tensor> bias_input(const Source& source) {
  Tensor bias = side_tensor(source.problem, "bias");
  if (bias.view.data == nullptr) return bias;
  const TensorEntry* entry = source.file ? source.file->find("bias") : nullptr;
  if (entry == nullptr) {
    fill_normal(bias.view, source.seed, Draw::kBias);
    fill_unread_bias(source.problem, bias, 0);
  } else if (bias.memory.size() > 0) {
    LONGSPAN_TRY(bias.memory, source.file->read(*entry));
    bias.view.data = bias.memory.data();
  }
  return bias;
}

std::vector<int32_t> full_lengths(const Problem& problem, int64_t Sequence::*capacity) {
  std::vector<int32_t> lengths;
  for (const Sequence& sequence : problem.lengths.sequences) {
    lengths.push_back(static_cast<int32_t>(sequence.*capacity));
  }
  return lengths;
}

std::vector<int32_t> drawn_lengths(const Problem& problem, int64_t Sequence::*capacity,
                                   Uniform& uniform) {
  std::vector<int32_t> lengths;
  for (const Sequence& sequence : problem.lengths.sequences) {
    const auto most = static_cast<uint64_t>(sequence.*capacity);
    const uint64_t kind = uniform.below(8);
    const uint64_t length = kind == 0 ? 0 : kind == 1 ? most : uniform.below(most + 1);
    lengths.push_back(static_cast<int32_t>(length));
  }
  return lengths;
}

void draw_lengths(Inputs& inputs) {
  Uniform uniform(inputs.seed, Draw::kLengths);
  inputs.lengths_q = drawn_lengths(inputs.problem, &Sequence::q_length, uniform);
  inputs.lengths_k = drawn_lengths(inputs.problem, &Sequence::k_length, uniform);
  inputs.notes.push_back(
      fmt::format("actual lengths are drawn from seed {}: lengths={} "
                  "kv_lengths={}",
                  inputs.seed, fmt::join(inputs.lengths_q, ","), fmt::join(inputs.lengths_k, ",")));
}

/// What of drawn tensors no token has in these lengths.
void clear_absent(Inputs& inputs) {
  for (const auto& [name, tensor] :
       {std::pair{"q", &inputs.q}, {"k", &inputs.k}, {"v", &inputs.v}, {"dout", &inputs.dout}}) {
    if (tensor->view.data == nullptr) continue;
    clear_padding(*tensor, token_rows(inputs.problem, tensor_spec(inputs.problem, name).side));
  }
}

/// From here on the problem is that of the actual lengths.
Status set_lengths(const Source& source, Inputs& inputs) {
  if (!inputs.problem.device_lengths) return {};
  inputs.capacities = inputs.problem;
  if (source.uniform_lengths) {
    inputs.lengths_q = full_lengths(inputs.problem, &Sequence::q_length);
    inputs.lengths_k = full_lengths(inputs.problem, &Sequence::k_length);
  } else {
    draw_lengths(inputs);
  }
  LONGSPAN_TRY(inputs.problem,
               with_lengths(inputs.problem, {.q = inputs.lengths_q, .k = inputs.lengths_k}));
  if (!source.file) clear_absent(inputs);
  return {};
}

/// Inputs that the problem has, but the file (if any) has not.
std::vector<std::string> missing(const Source& source, bool forward_only) {
  const Problem& problem = source.problem;
  std::vector<std::string> names = {"q", "k", "v"};
  if (!forward_only) names.emplace_back("dout");
  for (const char* name : {"sink", "alibi_slopes", "bias"}) {
    if (has_side_tensor(problem, name)) names.emplace_back(name);
  }
  std::erase_if(names, [&](const std::string& name) {
    return source.file && source.file->find(name) != nullptr;
  });
  return names;
}

std::vector<std::string> notes_on(const Source& source, bool forward_only) {
  std::vector<std::string> drawn = missing(source, forward_only);
  std::vector<std::string> notes;
  if (std::erase(drawn, "alibi_slopes") > 0)
    notes.emplace_back("alibi_slopes are the default ones");
  if (!drawn.empty()) {
    notes.insert(notes.begin(), fmt::format("{} {} drawn from seed {}", fmt::join(drawn, ", "),
                                            drawn.size() == 1 ? "is" : "are", source.seed));
  }
  if (!source.file) return notes;
  std::vector<std::string> unused;
  for (const std::string_view name : result_names()) {
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
    seed_dropout(source);
    return source;
  }
  LONGSPAN_TRY(source.file, SafetensorsFile::open(path));
  LONGSPAN_TRY(const ProblemFields in_file, metadata_fields(*source.file));
  LONGSPAN_TRY(source.problem, problem_of_file(*source.file, in_file.merged(given)));
  LONGSPAN_TRY(const uint64_t file_seed, metadata_seed(*source.file));
  source.seed = seed.value_or(file_seed);
  seed_dropout(source);
  return source;
}

Result<Inputs> make_inputs(const Source& source, bool forward_only) {
  LONGSPAN_CHECK_OK(fits_in_memory(input_bytes(source.problem), "q, k, v, dout and bias"));
  Inputs inputs;
  inputs.problem = source.problem;
  inputs.seed = source.seed;
  LONGSPAN_TRY(inputs.q, input(source, "q", Draw::kQ));
  LONGSPAN_TRY(inputs.k, input(source, "k", Draw::kK));
  LONGSPAN_TRY(inputs.v, input(source, "v", Draw::kV));
  if (!forward_only) {
    LONGSPAN_TRY(inputs.dout, input(source, "dout", Draw::kDout));
  }
  LONGSPAN_TRY(inputs.sink, sink_input(source));
  LONGSPAN_TRY(inputs.slopes, slopes_input(source));
  LONGSPAN_TRY(inputs.bias, bias_input(source));
  inputs.notes = notes_on(source, forward_only);
  LONGSPAN_CHECK_OK(set_lengths(source, inputs));
  return inputs;
}

SideOperands side_operands(const Inputs& inputs) {
  return {.sink = inputs.sink.view,
          .slopes = inputs.slopes.view,
          .bias = inputs.bias.view,
          .softcap = {},
          .dropout = {},
          .lengths = {.q = inputs.lengths_q, .k = inputs.lengths_k}};
}

}  // namespace longspan::tool
