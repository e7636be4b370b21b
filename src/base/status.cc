#include "longspan/status.h"

namespace longspan {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kGuardFailed: return "guard_failed";
    case ErrorCode::kPeerLost: return "peer_lost";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kDriver: return "driver";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

std::string Error::text() const {
  std::string result(name(code));
  if (!where.empty()) result += " (" + where + ")";
  return result + ": " + message;
}

}  // namespace longspan
