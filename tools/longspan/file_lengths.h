// Lengths of the sequences of an input file, of the query or of the key side.
#pragma once

#include <cstdint>
#include <string>

#include "longspan/problem.h"
#include "safetensors.h"

namespace longspan::tool {

/// Names and shape of one side.
struct FileSide {
  std::string cumulative;  // tensor of cumulative lengths; with "_padded": of cumulative extents
  std::string tensor;      // "q" or "k", whose rows count
  std::string lengths;     // keys of the problem text
  std::string padded;
  std::string tokens;
  int64_t batch = 1;
  int64_t seq = 0;      // rows of a packed tensor
  bool packed = false;  // layout thd

  int64_t rows() const { return batch * seq; }
};

/// `fields` with the side's lengths, extents and tokens: from the cumulative lengths, else from the
/// keys of `given`, else the tensor's whole extent. invalid_argument when they contradict each
/// other or the tensor.
Result<ProblemFields> with_lengths(const SafetensorsFile& file, const FileSide& side,
                                   const ProblemFields& given, ProblemFields fields);

}  // namespace longspan::tool
