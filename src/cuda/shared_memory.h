// Device memory that other processes of the host can reach.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "longspan/status.h"

namespace longspan::cuda {

/// What another process needs to map an allocation.
using MemoryHandle = std::array<std::byte, 64>;

/// The allocation that holds an address.
struct Allocation {
  uint64_t base = 0;
  uint64_t number = 0;      // never given twice in a process
  bool exportable = false;  // cudaMalloc's is; memory pools' and virtual memory's is not
};

/// invalid_argument where `address` is no memory of a device.
Result<Allocation> allocation_of(const void* address);
/// Of an exportable allocation.
Result<MemoryHandle> export_memory(uint64_t base);
/// Maps another process's allocation for the current device; undone by unmap_memory.
Result<void*> map_memory(const MemoryHandle& handle);
void unmap_memory(void* base);

}  // namespace longspan::cuda
