// Errors of the provider prepared.
#pragma once

#include <string>
#include <utility>

#include "longspan/status.h"

namespace longspan::prepared {

/// Something that somebody else wrote cannot be used.
inline Error refused(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message), "prepared"};
}

inline Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "prepared"};
}

}  // namespace longspan::prepared
