// Sink, slopes and bias of an input file.
#pragma once

#include "longspan/problem.h"
#include "safetensors.h"

namespace longspan::tool {

/// `problem` with sink=learnable, alibi=default and the kind of bias where the file has tensors
/// sink, alibi_slopes and bias. invalid_argument when a tensor does not fit the problem or
/// contradicts a key of `given`.
Result<Problem> with_sides(const SafetensorsFile& file, const ProblemFields& given,
                           Problem problem);

}  // namespace longspan::tool
