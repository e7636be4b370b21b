// One rank's tensors and memory for one call in flight.
#pragma once

#include <memory>
#include <vector>

#include "inputs.h"
#include "longspan/engine.h"
#include "memory.h"
#include "results.h"
#include "tensors.h"

namespace longspan::testkit {

/// Results are NaN until written.
struct Flight : tool::ResultTensors {
  std::shared_ptr<const Call> call;
  tool::Tensor q, k, v, dout;       // padding rows are NaN
  SideOperands side;                // views of the inputs
  std::vector<tool::Memory> saved;  // NaN until written
  tool::Memory workspace;           // NaN

  /// Views that a test may change before it passes them.
  ForwardOperands forward_operands() const;
  BackwardOperands backward_operands() const;
  Saved saved_pointers() const;
  Workspace scratch() const { return {workspace.data(), workspace.size()}; }
};

/// `inputs` outlive the flight. Not for paged problems.
Flight make_flight(const tool::Inputs& inputs, std::shared_ptr<const Call> call, int rank);

Status forward(Engine& engine, Flight& flight);
/// The workspace is poisoned first: it carries nothing from forward.
Status backward(Engine& engine, Flight& flight);

}  // namespace longspan::testkit
