#include "workbench.h"

#include <algorithm>

namespace longspan::tool {

Workbench::~Workbench() {
  if (workspace.data != nullptr) communicator_->release(workspace.data);
}

Status Workbench::set_up(const Call& call, const ShardInputs& inputs, ResultTensors& results) {
  const size_t bytes = std::max(call.workspace_bytes(Direction::kForward),
                                call.workspace_bytes(Direction::kBackward));
  if (bytes > 0) {
    LONGSPAN_TRY(workspace.data, communicator_->allocate(bytes));
    workspace.bytes = bytes;
  }
  LONGSPAN_CHECK_OK(make_saved(call));
  return make_operands(call, inputs, results);
}

Status Workbench::make_saved(const Call& call) {
  for (const BufferSpec& buffer : call.saved_layout()) {
    if (!buffer.alias.empty()) continue;
    int64_t bytes = size_of(buffer.dtype);
    for (const int64_t extent : buffer.shape) bytes *= extent;
    saved_bytes_.push_back(static_cast<size_t>(bytes));
    LONGSPAN_TRY(memory_.emplace_back(), allocate_on(device, saved_bytes_.back()));
    saved.push_back(memory_.back().get());
  }
  return {};
}

Status Workbench::make_operands(const Call& call, const ShardInputs& inputs,
                                ResultTensors& results) {
  ForwardOperands& f = forward;
  LONGSPAN_TRY(f.q, mirror.copy_of(inputs.q));
  LONGSPAN_TRY(f.k, mirror.copy_of(inputs.k));
  LONGSPAN_TRY(f.v, mirror.copy_of(inputs.v));
  LONGSPAN_TRY(f.o, mirror.twin_of(results.o));
  LONGSPAN_TRY(f.lse, mirror.twin_of(results.lse));
  LONGSPAN_TRY(f.max_logit, mirror.twin_of(results.max_logit));
  f.scale = call.problem().scale;
  f.side = inputs.side;
  LONGSPAN_TRY(f.side.sink, mirror.copy_of(inputs.side.sink));
  LONGSPAN_TRY(f.side.slopes, mirror.copy_of(inputs.side.slopes));
  LONGSPAN_TRY(f.side.bias, mirror.copy_of(inputs.side.bias));
  LONGSPAN_TRY(f.side.lengths, mirror.copy_of(inputs.side.lengths));
  BackwardOperands& b = backward;
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.o = f.o;
  b.lse = f.lse;
  b.scale = f.scale;
  b.side = f.side;
  LONGSPAN_TRY(b.dout, mirror.copy_of(inputs.dout));
  LONGSPAN_TRY(b.dq, mirror.twin_of(results.dq));
  LONGSPAN_TRY(b.dk, mirror.twin_of(results.dk));
  LONGSPAN_TRY(b.dv, mirror.twin_of(results.dv));
  LONGSPAN_TRY(b.dsink, mirror.twin_of(results.dsink));
  LONGSPAN_TRY(b.dbias, mirror.twin_of(results.dbias));
  return {};
}

Status Workbench::poison_saved() const {
  for (size_t i = 0; i < saved.size(); ++i) {
    LONGSPAN_CHECK_OK(set_bytes(device, saved[i], 0xff, saved_bytes_[i]));
  }
  return {};
}

Status Workbench::poison_workspace() const {
  return set_bytes(device, workspace.data, 0xff, workspace.bytes);
}

int64_t Workbench::bytes() const {
  size_t total = workspace.bytes;
  for (const size_t bytes : saved_bytes_) total += bytes;
  return static_cast<int64_t>(total);
}

}  // namespace longspan::tool
