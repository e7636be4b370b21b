// What a command computes on: the problem and its tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longspan/engine.h"
#include "longspan/problem.h"
#include "safetensors.h"
#include "tensors.h"

namespace longspan::tool {

/// A problem from text, from a file, or from both.
struct Source {
  Problem problem;
  uint64_t seed = 0;
  std::optional<SafetensorsFile> file;
  bool uniform_lengths = false;  // actual lengths are all of the capacities
};

/// The problem of `text` and `path` (either may be empty). `seed` empty: that of the file's
/// metadata, else 0. It is the problem's dropout_seed too where dropout has none of its own.
Result<Source> resolve_source(const std::string& text, const std::string& path,
                              std::optional<uint64_t> seed);

/// Whole tensors in the problem's layout; sink, slopes and bias as side_tensor().
struct Inputs {
  Problem problem;  // of the actual lengths, where calls bring them
  std::optional<Problem> capacities = std::nullopt;  // what ranks prepare then
  std::vector<int32_t> lengths_q, lengths_k;         // what calls bring then
  uint64_t seed = 0;
  Tensor q, k, v, dout;
  Tensor sink, slopes, bias;
  std::vector<std::string> notes;  // what a reader should know, one sentence each

  /// What ranks prepare.
  const Problem& declared() const { return capacities ? *capacities : problem; }
};

/// Reads the tensors of the file, draws those that it does not hold. Elements that belong to no
/// token are 0 where they are drawn. Slopes that the file does not hold are default_alibi_slopes.
/// Forward alone has no dout. Actual lengths of a problem with device_lengths are drawn too; now
/// and then one is 0 or all of its capacity.
Result<Inputs> make_inputs(const Source& source, bool forward_only = false);

/// Views of sink, slopes and bias; softcap and dropout are the problem's.
SideOperands side_operands(const Inputs& inputs);

}  // namespace longspan::tool
