#include "comm/peer/memory_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/runtime.h"

namespace longspan::comm {
namespace {

/// Mappings of one peer, and exports, that are remembered. A mapping keeps the memory behind it
/// from being used for anything else, even when its owner has freed it.
constexpr size_t kMostRemembered = 64;

}  // namespace

MemoryMap::~MemoryMap() {
  for (const std::vector<Mapping>& mappings : peers_) {
    for (const Mapping& mapping : mappings) cuda::unmap_memory(mapping.base);
  }
}

Result<MemoryName> MemoryMap::name_of(const void* address) {
  MemoryName name{.process = process_, .address = reinterpret_cast<uint64_t>(address)};
  if (!exports_ || address == nullptr) return name;
  LONGSPAN_TRY(const cuda::Allocation allocation, cuda::allocation_of(address));
  name.base = allocation.base;
  name.allocation = allocation.number;
  const auto known = std::find_if(exported_.begin(), exported_.end(), [&](const Export& e) {
    return e.allocation == allocation.number;
  });
  if (known != exported_.end()) {
    name.handle = known->handle;
    return name;
  }
  if (!allocation.exportable) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("memory at {} cannot be shared with other processes (a memory pool's "
                             "or virtual memory); take the workspace from "
                             "Communicator::allocate, or from cudaMalloc",
                             fmt::ptr(address)),
                 "peer"};
  }
  LONGSPAN_TRY(name.handle, cuda::export_memory(allocation.base));
  if (exported_.size() == kMostRemembered) exported_.erase(exported_.begin());
  exported_.push_back({.allocation = allocation.number, .handle = name.handle});
  return name;
}

Status MemoryMap::make_room(std::vector<Mapping>& mappings) {
  const auto kept = std::count_if(mappings.begin(), mappings.end(),
                                  [](const Mapping& mapping) { return mapping.keep; });
  if (mappings.size() - static_cast<size_t>(kept) < kMostRemembered) return {};
  const auto age = [](const Mapping& mapping) { return mapping.keep ? UINT64_MAX : mapping.used; };
  const auto oldest =
      std::min_element(mappings.begin(), mappings.end(),
                       [&](const Mapping& a, const Mapping& b) { return age(a) < age(b); });
  LONGSPAN_CHECK_OK(cuda::synchronize(lane_));
  cuda::unmap_memory(oldest->base);
  mappings.erase(oldest);
  return {};
}

Result<void*> MemoryMap::reach(int peer, const MemoryName& name, bool keep) {
  if (name.process == process_) return reinterpret_cast<void*>(name.address);
  if (name.address == 0) return nullptr;
  std::vector<Mapping>& mappings = peers_[static_cast<size_t>(peer)];
  const uint64_t offset = name.address - name.base;
  const auto known = std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.allocation == name.allocation;
  });
  if (known != mappings.end()) {
    known->used = ++uses_;
    known->keep |= keep;
    return static_cast<std::byte*>(known->base) + offset;
  }
  // NOTE: a lane that is being captured cannot be waited for.
  if (!keep) LONGSPAN_CHECK_OK(make_room(mappings));
  LONGSPAN_TRY(void* const base, cuda::map_memory(name.handle));
  mappings.push_back({.allocation = name.allocation, .base = base, .used = ++uses_, .keep = keep});
  return static_cast<std::byte*>(base) + offset;
}

}  // namespace longspan::comm
