// What the files of the C interface share: handles, and the way out of every function.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "longspan/c_api.h"
#include "longspan/engine.h"

struct longspan_device {
  longspan::Device device;
};
struct longspan_communicator {
  std::shared_ptr<longspan::Communicator> communicator;
};
struct longspan_engine {
  std::unique_ptr<longspan::Engine> engine;
};
struct longspan_call {
  std::shared_ptr<const longspan::Call> call;
};

namespace longspan::c_api {

inline int32_t fail(const Error& reason, longspan_error* error) {
  const int32_t code = static_cast<int32_t>(reason.code) + 1;
  if (error != nullptr) {
    error->code = code;
    const std::string text = reason.text();
    const size_t length = std::min(text.size(), sizeof(error->message) - 1);
    std::memcpy(error->message, text.data(), length);
    error->message[length] = 0;
  }
  return code;
}

inline int32_t done(const Status& status, longspan_error* error) {
  return status.ok() ? LONGSPAN_OK : fail(status.error(), error);
}

inline Error invalid(const char* message) {
  return {ErrorCode::kInvalidArgument, message, "c_api"};
}

/// No exception (the standard library's bad_alloc, say) may cross into C.
template <class Body>
int32_t guarded(longspan_error* error, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kOutOfMemory, "host memory is exhausted", "c_api"}, error);
  } catch (const std::exception& e) {
    return fail({ErrorCode::kInternal, e.what(), "c_api"}, error);
  }
}

inline bool any_null(std::initializer_list<const void*> pointers) {
  return std::find(pointers.begin(), pointers.end(), nullptr) != pointers.end();
}

}  // namespace longspan::c_api
