// Engine options and devices from the values that Python passes.
#pragma once

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include "longspan/engine.h"

namespace longspan::python {

using OptionMap = tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Any>;

/// Keys as the fields of longspan.Options. Unknown ones are invalid_argument.
Options options_of(const OptionMap& values);

/// "cpu", "cpu:THREADS", "cuda" or "cuda:ORDINAL".
Device device_of(const std::string& text);

}  // namespace longspan::python
