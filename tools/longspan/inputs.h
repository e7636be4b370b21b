// What a command computes on: the problem and its tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longspan/problem.h"
#include "safetensors.h"
#include "tensors.h"

namespace longspan::tool {

/// A problem from text, from a file, or from both.
struct Source {
  Problem problem;
  uint64_t seed = 0;
  std::optional<SafetensorsFile> file;
};

/// The problem of `text` and `path` (either may be empty). `seed` empty: that of the file's
/// metadata, else 0.
Result<Source> resolve_source(const std::string& text, const std::string& path,
                              std::optional<uint64_t> seed);

/// Whole tensors in the problem's layout.
struct Inputs {
  Problem problem;
  uint64_t seed = 0;
  Tensor q, k, v, dout;
  std::vector<std::string> notes;  // what a reader should know, one sentence each
};

/// Reads the tensors of the file, draws those that it does not hold. Rows that hold no token are 0
/// where they are drawn.
Result<Inputs> make_inputs(const Source& source);

}  // namespace longspan::tool
