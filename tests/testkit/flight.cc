#include "testkit/flight.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rank.h"

namespace longspan::testkit {
namespace {

tool::Memory poisoned(size_t bytes) {
  tool::Memory memory(bytes);
  if (bytes > 0) std::memset(memory.data(), 0xff, bytes);
  return memory;
}

const Shard& shard_of(const Partition& partition, tool::Side side, int rank) {
  return side == tool::Side::kQuery ? partition.q(rank) : partition.k(rank);
}

tool::Tensor input(const tool::Inputs& inputs, const Call& call, const char* name,
                   const tool::Tensor& whole, int rank) {
  const Problem& problem = call.problem();
  const tool::TensorSpec spec = tool::tensor_spec(problem, name);
  const Shard& shard = shard_of(call.partition(), spec.side, rank);
  tool::Tensor tensor = tool::shard_tensor(problem, spec, shard);
  const std::vector<int64_t> rows = spec.side == tool::Side::kQuery
                                        ? call.partition().q_indices(problem, rank)
                                        : call.partition().k_indices(problem, rank);
  tool::scatter_rows(whole.view, tensor.view, rows);
  tool::poison_padding(tensor, rows, tool::token_rows(inputs.problem, spec.side));
  return tensor;
}

}  // namespace

ForwardOperands Flight::forward_operands() const {
  return {.q = q.view,
          .k = k.view,
          .v = v.view,
          .o = o.view,
          .lse = lse.view,
          .scale = call->problem().scale,
          .side = side,
          .max_logit = max_logit.view};
}

BackwardOperands Flight::backward_operands() const {
  return {.q = q.view,
          .k = k.view,
          .v = v.view,
          .o = o.view,
          .lse = lse.view,
          .dout = dout.view,
          .dq = dq.view,
          .dk = dk.view,
          .dv = dv.view,
          .scale = call->problem().scale,
          .side = side,
          .dsink = dsink.view,
          .dbias = dbias.view};
}

Saved Flight::saved_pointers() const {
  Saved pointers;
  for (const tool::Memory& memory : saved) pointers.push_back(memory.data());
  return pointers;
}

Flight make_flight(const tool::Inputs& inputs, std::shared_ptr<const Call> call, int rank) {
  Flight flight;
  static_cast<tool::ResultTensors&>(flight) = tool::make_rank_results(*call, rank);
  for (const auto& [name, tensor] : tool::present(flight)) tool::poison(*tensor);
  flight.side = tool::side_operands(inputs);
  flight.q = input(inputs, *call, "q", inputs.q, rank);
  flight.k = input(inputs, *call, "k", inputs.k, rank);
  flight.v = input(inputs, *call, "v", inputs.v, rank);
  flight.dout = input(inputs, *call, "dout", inputs.dout, rank);
  for (const BufferSpec& spec : call->saved_layout()) {
    if (!spec.alias.empty()) continue;
    int64_t bytes = size_of(spec.dtype);
    for (const int64_t extent : spec.shape) bytes *= extent;
    flight.saved.push_back(poisoned(static_cast<size_t>(bytes)));
  }
  flight.workspace = poisoned(std::max(call->workspace_bytes(Direction::kForward),
                                       call->workspace_bytes(Direction::kBackward)));
  flight.call = std::move(call);
  return flight;
}

Status forward(Engine& engine, Flight& flight) {
  Stream stream;
  return engine.forward(*flight.call, flight.forward_operands(), flight.saved_pointers(),
                        flight.scratch(), stream);
}

Status backward(Engine& engine, Flight& flight) {
  Stream stream;
  if (flight.workspace.size() > 0) {
    std::memset(flight.workspace.data(), 0xff, flight.workspace.size());
  }
  return engine.backward(*flight.call, flight.backward_operands(), flight.saved_pointers(),
                         flight.scratch(), stream);
}

}  // namespace longspan::testkit
