// How a function gets its place in the native library.
#pragma once

#include <tvm/ffi/function.h>

/// Exports longspan::python::NAME as NAME.
#define LONGSPAN_EXPORT(NAME) TVM_FFI_DLL_EXPORT_TYPED_FUNC(NAME, longspan::python::NAME);
