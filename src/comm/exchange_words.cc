#include <algorithm>

#include "comm/check_transfers.h"
#include "longspan/communicator.h"

namespace longspan {

Result<std::vector<uint64_t>> exchange_words(Communicator& communicator,
                                             std::span<const uint64_t> mine,
                                             std::chrono::milliseconds deadline) {
  const int size = communicator.size();
  std::vector<uint64_t> sent(mine.begin(), mine.end());  // Transfer::data is not const
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(size));
  std::vector<Transfer> transfers;
  transfers.reserve(2 * static_cast<size_t>(size));
  // Starting behind the own rank spreads the messages: not everybody asks rank 0 first.
  for (int step = 1; step < size; ++step) {
    const int peer = (communicator.rank() + step) % size;
    Transfer transfer = {.kind = TransferKind::kRecv, .peer = peer, .tag = comm::kExchangeTag};
    transfer.data = all.data() + static_cast<size_t>(peer) * mine.size();
    transfer.bytes = mine.size_bytes();
    transfers.push_back(transfer);
    transfer.kind = TransferKind::kSend;
    transfer.data = sent.data();
    transfers.push_back(transfer);
  }
  std::copy(mine.begin(), mine.end(),
            all.begin() + static_cast<ptrdiff_t>(mine.size()) * communicator.rank());
  LONGSPAN_TRY(const Request request, communicator.start(transfers));
  LONGSPAN_CHECK_OK(communicator.wait(request, deadline));
  return all;
}

}  // namespace longspan
