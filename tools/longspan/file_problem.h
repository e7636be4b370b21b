// The problem that an input file states.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "longspan/problem.h"
#include "safetensors.h"

namespace longspan::tool {

/// dtype, heads, dims, layout and lengths come from the tensors and cu_seqlens_*, sink, alibi and
/// bias from tensors where the file has them, the other keys from `fields`. Keys of `fields` that
/// the tensors determine too must agree with them; else invalid_argument names key, value and what
/// the file has. Tensors that longspan does not know are invalid_argument.
Result<Problem> problem_of_file(const SafetensorsFile& file, const ProblemFields& fields);

/// Tensors of an output file that are no inputs.
std::span<const std::string_view> result_names();

/// The types that hold attention inputs.
Result<DType> tensor_dtype(const SafetensorsFile& file, const std::string& name);

}  // namespace longspan::tool
