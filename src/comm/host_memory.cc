#include "comm/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace longspan::comm {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void HostMemory::Free::operator()(void* data) const { ::operator delete(data, kAlignment); }

Result<void*> HostMemory::allocate(size_t bytes, const char* where) {
  void* data = nullptr;
  // Larger requests are beyond any address space; allocators differ in how they take them.
  if (bytes <= SIZE_MAX / 4) {
    data = ::operator new(std::max<size_t>(bytes, 1), kAlignment, std::nothrow);
  }
  if (data == nullptr) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("cannot allocate {} bytes of host memory for exchange buffers", bytes),
                 where};
  }
  blocks_.emplace(data, std::unique_ptr<void, Free>(data));
  return data;
}

void HostMemory::release(void* data) { blocks_.erase(data); }

}  // namespace longspan::comm
