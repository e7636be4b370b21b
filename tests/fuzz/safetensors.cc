// Any bytes as a file: refused, or read into a problem and its tensors.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "inputs.h"

namespace {

/// A file in memory that holds `data`.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("input", 0)) {
    if (descriptor_ < 0) std::abort();
    if (write(descriptor_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

/// Few enough elements that drawing them is quick.
bool small(const longspan::Problem& p) {
  constexpr int64_t kMost = 1 << 16;
  const std::array<int64_t, 4> bias = p.bias_shape();
  return (p.lengths.tokens_q + p.lengths.tokens_k) * p.heads_q * (p.dim_qk + p.dim_v) < kMost &&
         bias[0] * bias[1] * bias[2] * bias[3] < kMost;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const auto source = longspan::tool::resolve_source("", file.path(), std::nullopt);
  if (!source.ok()) {
    if (source.error().message.empty()) std::abort();
    return 0;
  }
  if (!small(source->problem)) return 0;
  const auto inputs = longspan::tool::make_inputs(*source);
  if (!inputs.ok() && inputs.error().message.empty()) std::abort();
  return 0;
}
