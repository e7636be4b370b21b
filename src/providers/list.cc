#include <array>

#include "providers/cpu/reference.h"
#include "providers/cpu/tiled.h"

namespace longspan {

std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 2> kProviders = {
      &kCpuTiled,      // blocked, all cores
      &kCpuReference,  // float64, row by row
  };
  return kProviders;
}

}  // namespace longspan
