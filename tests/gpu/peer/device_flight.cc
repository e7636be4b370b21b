#include "gpu/peer/device_flight.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "numbers.h"

namespace longspan::testing {
namespace {

constexpr int kNan = 0xff;

}  // namespace

Result<std::unique_ptr<DeviceFlight>> DeviceFlight::make(const tool::Inputs& inputs,
                                                         std::shared_ptr<const Call> call,
                                                         std::shared_ptr<Communicator> communicator,
                                                         const Device& device) {
  std::unique_ptr<DeviceFlight> flight(new DeviceFlight(std::move(communicator), device));
  LONGSPAN_CHECK_OK(flight->place(inputs, std::move(call)));
  return flight;
}

DeviceFlight::~DeviceFlight() {
  if (workspace_.data != nullptr) communicator_->release(workspace_.data);
}

Status DeviceFlight::place(const tool::Inputs& inputs, std::shared_ptr<const Call> call) {
  LONGSPAN_CHECK_OK(place_memory(*call));
  host_ = testkit::make_flight(inputs, std::move(call), communicator_->rank());
  ForwardOperands& f = forward_;
  BackwardOperands& b = backward_;
  LONGSPAN_CHECK_OK(place_lengths(inputs));
  f = host_.forward_operands();
  b = host_.backward_operands();
  LONGSPAN_TRY(f.q, mirror_.twin_of(host_.q));
  LONGSPAN_TRY(f.k, mirror_.twin_of(host_.k));
  LONGSPAN_TRY(f.v, mirror_.twin_of(host_.v));
  LONGSPAN_TRY(f.o, mirror_.twin_of(host_.o));
  LONGSPAN_TRY(f.lse, mirror_.twin_of(host_.lse));
  LONGSPAN_TRY(b.dout, mirror_.twin_of(host_.dout));
  LONGSPAN_TRY(b.dq, mirror_.twin_of(host_.dq));
  LONGSPAN_TRY(b.dk, mirror_.twin_of(host_.dk));
  LONGSPAN_TRY(b.dv, mirror_.twin_of(host_.dv));
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.o = f.o;
  b.lse = f.lse;
  return {};
}

Status DeviceFlight::place_memory(const Call& call) {
  for (const BufferSpec& spec : call.saved_layout()) {
    if (!spec.alias.empty()) continue;
    auto bytes = static_cast<size_t>(size_of(spec.dtype));
    for (const int64_t extent : spec.shape) bytes *= static_cast<size_t>(extent);
    LONGSPAN_TRY(memory_.emplace_back(), allocate_on(device_, bytes));
    saved_.push_back(memory_.back().get());
    scratch_.push_back({.data = memory_.back().get(), .bytes = bytes});
  }
  workspace_.bytes = std::max(call.workspace_bytes(Direction::kForward),
                              call.workspace_bytes(Direction::kBackward));
  LONGSPAN_TRY(workspace_.data, communicator_->allocate(workspace_.bytes));
  scratch_.push_back({.data = workspace_.data, .bytes = workspace_.bytes});
  return {};
}

Status DeviceFlight::place_lengths(const tool::Inputs& inputs) {
  const size_t count = inputs.lengths_q.size();
  LONGSPAN_TRY(lengths_q_, allocate_on(device_, count * sizeof(int32_t)));
  LONGSPAN_TRY(lengths_k_, allocate_on(device_, count * sizeof(int32_t)));
  host_.side.lengths = {.q = {static_cast<const int32_t*>(lengths_q_.get()), count},
                        .k = {static_cast<const int32_t*>(lengths_k_.get()), count}};
  return load_lengths(inputs.lengths_q, inputs.lengths_k);
}

Status DeviceFlight::load_lengths(std::span<const int32_t> q, std::span<const int32_t> k) {
  LONGSPAN_CHECK_OK(copy_bytes(device_, lengths_q_.get(), q.data(), q.size_bytes()));
  return copy_bytes(device_, lengths_k_.get(), k.data(), k.size_bytes());
}

Status DeviceFlight::load(const tool::Inputs& inputs) {
  LONGSPAN_CHECK_OK(load_lengths(inputs.lengths_q, inputs.lengths_k));
  testkit::Flight fresh = testkit::make_flight(inputs, host_.call, communicator_->rank());
  for (tool::Tensor testkit::Flight::*tensor :
       {&testkit::Flight::q, &testkit::Flight::k, &testkit::Flight::v, &testkit::Flight::dout}) {
    std::swap((host_.*tensor).memory, (fresh.*tensor).memory);
    (host_.*tensor).view.data = (host_.*tensor).memory.data();
  }
  for (const auto& [name, tensor] : tool::present(host_)) tool::poison(*tensor);
  for (const Block& block : scratch_) {
    LONGSPAN_CHECK_OK(set_bytes(device_, block.data, kNan, block.bytes));
  }
  return mirror_.upload();
}

Status DeviceFlight::forward(Engine& engine, Stream stream) {
  return engine.forward(*host_.call, forward_, saved_, workspace_, stream);
}

Status DeviceFlight::backward(Engine& engine, Stream stream) {
  return engine.backward(*host_.call, backward_, saved_, workspace_, stream);
}

Status DeviceFlight::queue(Engine& engine, Stream stream) {
  LONGSPAN_CHECK_OK(forward(engine, stream));
  return backward(engine, stream);
}

Result<tool::ResultTensors*> DeviceFlight::download() {
  LONGSPAN_CHECK_OK(mirror_.download());
  return static_cast<tool::ResultTensors*>(&host_);
}

Result<int64_t> DeviceFlight::numbers(std::string_view wanted) {
  LONGSPAN_CHECK_OK(mirror_.download());
  int64_t count = 0;
  for (const auto& [name, tensor] : tool::present(host_)) {
    if (name != wanted) continue;
    const DType dtype = tensor->view.dtype;
    for (int64_t i = 0; i < static_cast<int64_t>(tensor->memory.size()) / size_of(dtype); ++i) {
      if (!std::isnan(tool::load(tensor->memory.data(), dtype, i))) ++count;
    }
  }
  return count;
}

Result<std::vector<std::byte>> DeviceFlight::results() {
  LONGSPAN_CHECK_OK(mirror_.download());
  std::vector<std::byte> bytes;
  for (const auto& [name, tensor] : tool::present(host_)) {
    const std::byte* const data = tensor->memory.data();
    const auto size = tensor->memory.size();
    bytes.insert(bytes.end(), data, data + size);
    const DType dtype = tensor->view.dtype;
    for (int64_t i = 0; i < static_cast<int64_t>(size) / size_of(dtype); ++i) {
      if (!std::isnan(tool::load(data, dtype, i))) continue;
      return Error{ErrorCode::kInternal, std::string(name) + " has NaN elements", "test"};
    }
  }
  return bytes;
}

}  // namespace longspan::testing
