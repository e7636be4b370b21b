// What XLA hands to every handler: all arrays, problem and request; on CUDA before them the stream
// and the ordinal of the device.
#pragma once

#include <string_view>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace longspan::xla {

template <class Binding>
auto with_arrays(Binding binding) {
  return std::move(binding)
      .RemainingArgs()
      .RemainingRets()
      .template Attr<std::string_view>("problem")
      .template Attr<std::string_view>("request");
}

inline auto host_binding() { return with_arrays(::xla::ffi::Ffi::Bind()); }

inline auto cuda_binding() {
  namespace ffi = ::xla::ffi;
  return with_arrays(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::DeviceOrdinal>());
}

}  // namespace longspan::xla
