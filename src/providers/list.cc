#include <array>

#include "providers/cpu/reference.h"
#include "providers/cpu/tiled.h"
#include "providers/cuda/reference.h"
#include "providers/cudnn/cudnn.h"
#include "providers/hopper/hopper.h"
#include "providers/prepared/prepared.h"

namespace longspan {

std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 6> kProviders = {
      &kPrepared,       // what a store named by the caller holds, 16 bit
      &kCudnn,          // graphs of cuDNN, 16 bit
      &kHopper,         // own kernels, 16 bit
      &kCudaReference,  // float64, row by row, behind all that is faster on its device
      &kCpuTiled,       // blocked, all cores
      &kCpuReference,   // float64, row by row
  };
  return kProviders;
}

}  // namespace longspan
