// The problem that an input file states.
#pragma once

#include <cstdint>
#include <string>

#include "longspan/problem.h"
#include "safetensors.h"

namespace longspan::tool {

/// dtype, heads, dims, layout and lengths come from the tensors and cu_seqlens_*, the other keys
/// from `fields`. Keys of `fields` that the tensors determine too must agree with them; else
/// invalid_argument names key, value and what the file has. Tensors that longspan does not know are
/// invalid_argument, inputs of keys that are not honoured yet unsupported.
Result<Problem> problem_of_file(const SafetensorsFile& file, const ProblemFields& fields);

/// The types that hold attention inputs.
Result<DType> tensor_dtype(const SafetensorsFile& file, const std::string& name);

}  // namespace longspan::tool
