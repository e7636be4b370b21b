// The transfers of one start, as the mpi communicator tracks them. Included by communicator.cc
// alone.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::comm {

struct MpiOp {
  Transfer transfer;
  size_t flight = 0;      // index into MpiFlights
  size_t matched = 0;     // bytes whose pieces have been handed to MPI
  bool complete = false;  // all pieces have been handed to MPI
  int live = 0;           // pieces that MPI works on

  bool done() const { return complete && live == 0; }
};

struct MpiFlight {
  int64_t generation = 0;             // odd while in use; tells stale requests apart
  int incoming = 0;                   // receives that still miss pieces
  int live = 0;                       // pieces that MPI works on
  std::vector<MpiOp> ops;             // sized once per use: pointers into it stay good
  std::vector<MPI_Request> requests;  // one per piece
  std::vector<size_t> op_of_request;
  std::vector<int> indices;  // answers of MPI_Testsome
  std::vector<MPI_Status> statuses;

  bool done() const { return incoming == 0 && live == 0; }
  void add_request(size_t op, MPI_Request request) {
    requests.push_back(request);
    op_of_request.push_back(op);
    ++ops[op].live;
    ++live;
  }
};

/// Flights by request number. Slots are reused and keep their capacity.
class MpiFlights {
 public:
  size_t take(std::span<const Transfer> transfers) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const size_t index = free_.back();
    free_.pop_back();
    MpiFlight& flight = slots_[index];
    flight.generation = next(flight.generation);
    flight.incoming = 0;
    flight.live = 0;
    flight.ops.clear();
    flight.requests.clear();
    flight.op_of_request.clear();
    for (const Transfer& transfer : transfers) {
      flight.ops.push_back({.transfer = transfer, .flight = index});
    }
    return index;
  }

  MpiFlight& at(size_t index) { return slots_[index]; }
  Request request(size_t index) const {
    return {slots_[index].generation << 32 | static_cast<int64_t>(index)};
  }

  std::optional<size_t> find(Request request) const {
    const size_t index = static_cast<size_t>(request.id & 0xffffffff);
    if (request.id < 0 || index >= slots_.size()) return std::nullopt;
    const int64_t generation = slots_[index].generation;
    if (generation % 2 == 0 || generation != request.id >> 32) return std::nullopt;
    return index;
  }

  void recycle(size_t index) {
    slots_[index].generation = next(slots_[index].generation);
    free_.push_back(index);
  }

 private:
  // Below 2^31, so that the request's number stays positive; odd numbers meet odd ones again.
  static int64_t next(int64_t generation) { return (generation + 1) & 0x7fffffff; }

  std::deque<MpiFlight> slots_;
  std::vector<size_t> free_;
};

}  // namespace longspan::comm
