#include "memory.h"

#include <fmt/format.h>
#include <unistd.h>

namespace longspan::tool {

Status fits_in_memory(double bytes, const char* what) {
  const double available =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= available) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{} would need {:.1f} GiB, this machine has {:.1f} GiB: use fewer tokens "
                  "or heads, or a machine with more memory",
                  what, bytes / 0x1p30, available / 0x1p30),
      "memory"};
}

}  // namespace longspan::tool
