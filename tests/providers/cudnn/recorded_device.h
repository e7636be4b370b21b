// cuDNN told about a device that is not there.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "longspan/libraries.h"
#include "providers/cudnn/library.h"

namespace longspan::cudnn {

/// An H200 by its data sheet, where none has been recorded.
inline constexpr const char* kDescribed =
    R"({"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("totalGlobalMem":150109880320,"supportCoopLaunch":1,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"deviceName":"NVIDIA H200"})";

inline std::string recorded_or_described() {
  std::ifstream file(LONGSPAN_RECORDED_PROPERTIES);
  std::stringstream text;
  text << file.rdbuf();
  return text.str().empty() ? kDescribed : text.str();
}

/// Opens cuDNN, which wants the driver's library to exist.
inline void load_without_device() {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    ASSERT_NE(dlopen(LONGSPAN_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  }
  static const Status set = set_cudnn_path(LONGSPAN_CUDNN_DIRECTORY);  // once a process
  ASSERT_TRUE(set.ok()) << set.error().text();
  const auto found = library();
  ASSERT_TRUE(found.ok()) << found.error().text();
}

}  // namespace longspan::cudnn
