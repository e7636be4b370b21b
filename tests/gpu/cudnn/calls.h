// Calls of cudnn's plans on a stream, for capture.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "gpu/device_tensors.h"
#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {

/// Both directions of a case on device copies of its tensors.
class Calls {
 public:
  Calls(const Case& c, const Inputs& in, const Outcome& results, const Tensor& lse,
        const Tensor& delta, Stream stream)
      : tiles_(c.tiles) {
    TileProblem problem = c.problem;
    problem.direction = Direction::kForward;
    forward_plan_ = kCudnn.prepare(problem, lane_device(1)).value();
    problem.direction = Direction::kBackward;
    backward_plan_ = kCudnn.prepare(problem, lane_device(1)).value();
    forward_staged_ = forward_plan_->stage(tiles_).value();
    backward_staged_ = backward_plan_->stage(tiles_).value();
    const size_t bytes =
        std::max(forward_plan_->workspace_bytes(), backward_plan_->workspace_bytes());
    scratch_ = GuardedMemory::poisoned(bytes).value();
    workspace_ = {scratch_.data(), bytes};
    forward_ = {.q = input(in.q),
                .k = input(in.k),
                .v = input(in.v),
                .o = output(results.carry.o),
                .lse = output(results.carry.lse),
                .tiles = tiles_,
                .scale = c.scale,
                .terms = c.terms,
                .stream = stream,
                .staged = forward_staged_.get()};
    backward_ = {.q = forward_.q,
                 .k = forward_.k,
                 .v = forward_.v,
                 .dout = input(in.dout),
                 .lse = input(lse),
                 .delta = input(delta),
                 .dq = output(results.gradients.dq),
                 .dk = output(results.gradients.dk),
                 .dv = output(results.gradients.dv),
                 .tiles = tiles_,
                 .scale = c.scale,
                 .stream = stream,
                 .staged = backward_staged_.get()};
    if (c.terms.bias.data == nullptr) return;
    forward_.terms.bias = tensors_.input("bias", c.terms.bias).value();
    backward_.terms = forward_.terms;
    backward_.dbias = tensors_.output("dbias", c.dbias).value();
  }

  Status enqueue() const {
    LONGSPAN_CHECK_OK(forward_plan_->forward(forward_, workspace_));
    return backward_plan_->backward(backward_, workspace_);
  }
  ForwardTiles& forward_call() { return forward_; }
  Status forward() const { return forward_plan_->forward(forward_, workspace_); }
  Status upload() { return tensors_.upload(); }
  Status copy_back() { return tensors_.copy_back(); }

 private:
  TensorView input(const Tensor& host) { return tensors_.input("input", host.view()).value(); }
  TensorView output(const Tensor& host) { return tensors_.output("output", host.view()).value(); }

  std::vector<PlacedTile> tiles_;
  std::shared_ptr<const Plan> forward_plan_, backward_plan_;
  std::shared_ptr<const Staged> forward_staged_, backward_staged_;
  GuardedMemory scratch_;
  DeviceTensors tensors_;
  Workspace workspace_;
  ForwardTiles forward_;
  BackwardTiles backward_;
};

}  // namespace longspan::testing
