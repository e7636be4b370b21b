// Messages over one MPI communicator. Private to this folder, because of the MPI header.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/flight.h"
#include "comm/mpi/notice.h"
#include "comm/mpi/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Every message is probed first and received when its size fits.
/// NOTE: a posted MPI_Irecv that is too small is no way to find unequal sizes: over shared memory
/// Open MPI 4.1 writes the whole of a large message behind the buffer before it reports truncation.
class MpiChannel {
 public:
  /// Owns `communicator`, which nothing else sends on.
  MpiChannel(std::shared_ptr<MpiRuntime> runtime, MPI_Comm communicator, size_t piece_bytes);
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  Result<Request> start(std::span<const Transfer> transfers);
  Status wait(Request request, std::chrono::milliseconds deadline);
  void abandon(const std::string& reason);

 private:
  /// A probed piece that no receive was posted for yet.
  struct Arrival {
    MPI_Message message;
    int peer;
    int tag;
    size_t bytes;
  };

  static constexpr std::chrono::milliseconds kLastWord{250};

  int wire_tag(uint32_t tag) const;
  Status check_tags(std::span<const Transfer> transfers) const;
  Status send(size_t flight, size_t op);
  Status expect(size_t flight, size_t op);
  Status progress();
  Status arrive(Arrival arrival);
  Status receive(MpiOp& op, Arrival arrival);
  Status read_notice(Arrival arrival);
  Status collect(MpiFlight& flight);
  Status poll(MpiFlight& flight);
  Status until_done(MpiFlight& flight, std::chrono::milliseconds deadline);
  Status lost_peer(const MpiFlight& flight) const;
  /// Tells all that this rank leaves, then listens for a moment: the peer that is late may itself
  /// have waited in vain for the rank that was lost.
  Error give_up(const MpiFlight& flight, std::chrono::milliseconds deadline);
  Error missing(const MpiFlight& flight, std::chrono::milliseconds deadline) const;
  Error mismatch(const MpiOp& op, size_t piece);
  void tell(std::span<const int> peers, NoticeKind kind, const std::string& text);
  Error fail(Error error);

  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm communicator_;
  size_t piece_bytes_;
  int rank_ = 0;
  int size_ = 0;
  int notice_tag_ = 0;  // the largest tag that this MPI has
  MpiFlights flights_;
  std::vector<MpiOp*> expected_;  // receives that miss pieces, in order of posting
  std::deque<Arrival> arrivals_;  // in order of arrival
  std::vector<std::optional<std::string>> gone_;
  std::optional<Error> broken_;
  bool abandoned_ = false;
  int64_t moved_ = 0;  // pieces that arrived or were done
};

}  // namespace longspan::comm
