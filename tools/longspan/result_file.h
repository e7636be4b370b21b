// Inputs and results of a run as one safetensors file.
#pragma once

#include "group.h"
#include "output_file.h"

namespace longspan::tool {

/// Whether the file holds dropout_keep: where there is dropout, and the mask is not too large.
bool writes_dropout_keep(const Problem& problem);

/// Writes inputs, results, cu_seqlens_* and the metadata problem, seed and longspan, and commits.
Status write_results(OutputFile& file, const Inputs& inputs, const GroupResults& results);

}  // namespace longspan::tool
