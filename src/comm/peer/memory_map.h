// Memory of the peers as this rank can reach it.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/peer/region.h"
#include "cuda/shared_memory.h"
#include "longspan/tensor.h"

namespace longspan::comm {

/// Used by one thread at a time. Mappings are for the device that is current.
class MemoryMap {
 public:
  /// `lane`: the stream of all accesses to mapped memory. `exports`: some peer is another process.
  MemoryMap(int ranks, Stream lane, bool exports)
      : peers_(static_cast<size_t>(ranks)),
        process_(process_number()),
        lane_(lane),
        exports_(exports) {}
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  /// How peers name this rank's memory. unsupported, naming the address and the remedy, where other
  /// processes cannot map it.
  Result<MemoryName> name_of(const void* address);
  /// Memory of a peer here. Mapped where it is another process's; `keep`: for good.
  Result<void*> reach(int peer, const MemoryName& name, bool keep);

 private:
  struct Mapping {
    uint64_t allocation;  // of the peer
    void* base;
    uint64_t used;  // when
    bool keep;
  };
  struct Export {
    uint64_t allocation;
    cuda::MemoryHandle handle;
  };

  Status make_room(std::vector<Mapping>& mappings);

  std::vector<std::vector<Mapping>> peers_;
  std::vector<Export> exported_;
  uint64_t process_;
  Stream lane_;
  bool exports_;
  uint64_t uses_ = 0;
};

}  // namespace longspan::comm
