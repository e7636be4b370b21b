#include "comm/check_transfers.h"

#include <fmt/format.h>

namespace longspan::comm {

Status check_transfers(std::span<const Transfer> transfers, int size, const char* where,
                       bool lends) {
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
    const bool borrows = transfer.kind == TransferKind::kBorrow;
    if (!lends && (borrows || transfer.kind == TransferKind::kLend)) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("transfer {} is a loan and {} has none; ask lends() first", i, where), where};
    }
    if (transfer.data == nullptr && transfer.bytes > 0 && !borrows) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("transfer {} states {} bytes and no memory (data is null)", i,
                               transfer.bytes),
                   where};
    }
  }
  return {};
}

}  // namespace longspan::comm
