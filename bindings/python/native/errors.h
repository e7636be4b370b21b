// From Result to exceptions: Python maps their kinds to the classes in longspan/_errors.py.
#pragma once

#include <tvm/ffi/error.h>

#include <string>
#include <utility>

#include "longspan/status.h"

namespace longspan::python {

/// The kind is "longspan." and the name of the code: "longspan.unsupported".
[[noreturn]] inline void raise(const Error& error) {
  throw tvm::ffi::Error("longspan." + std::string(name(error.code)), error.text(), "");
}

template <class T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}

inline void check_or_raise(const Status& status) {
  if (!status.ok()) raise(status.error());
}

}  // namespace longspan::python
