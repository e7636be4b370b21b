#include "comm/check_transfers.h"

#include <fmt/format.h>

namespace longspan::comm {

Status check_transfers(std::span<const Transfer> transfers, int size, const char* where) {
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    if (transfer.peer < 0 || transfer.peer >= size) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("transfer {} names peer {}; this communicator has ranks 0 to {}", i,
                               transfer.peer, size - 1),
                   where};
    }
    if (transfer.tag > kExchangeTag) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("transfer {} has tag {}; the largest tag is {}", i, transfer.tag,
                               kLargestTag),
                   where};
    }
    if (transfer.data == nullptr && transfer.bytes > 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("transfer {} states {} bytes and no memory (data is null)", i,
                               transfer.bytes),
                   where};
    }
  }
  return {};
}

}  // namespace longspan::comm
