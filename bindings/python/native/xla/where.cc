#include "where.h"

#include "devices.h"

namespace longspan::xla {
namespace {

ffi::ErrorCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return ffi::ErrorCode::kInvalidArgument;
    case ErrorCode::kUnsupported: return ffi::ErrorCode::kUnimplemented;
    case ErrorCode::kGuardFailed: return ffi::ErrorCode::kFailedPrecondition;
    case ErrorCode::kPeerLost: return ffi::ErrorCode::kAborted;
    case ErrorCode::kTimeout: return ffi::ErrorCode::kDeadlineExceeded;
    case ErrorCode::kOutOfMemory: return ffi::ErrorCode::kResourceExhausted;
    case ErrorCode::kDriver:
    case ErrorCode::kInternal: return ffi::ErrorCode::kInternal;
  }
  return ffi::ErrorCode::kInternal;
}

}  // namespace

Status Where::read(void* to, const ffi::AnyBuffer& from) const {
  if (ordinal == kHost) {
    std::memcpy(to, from.untyped_data(), from.size_bytes());
    return {};
  }
  LONGSPAN_TRY(const Device* const device, device_of(ordinal));
  LONGSPAN_CHECK_OK(synchronize(*device, stream));
  return copy_bytes(*device, to, from.untyped_data(), from.size_bytes());
}

ffi::Error to_xla(const Status& status) {
  if (status.ok()) return ffi::Error::Success();
  return ffi::Error(code_of(status.error().code), "longspan: " + status.error().text());
}

}  // namespace longspan::xla
