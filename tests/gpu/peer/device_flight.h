// One rank's call on its device: the tensors of a testkit flight, copied there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/engine.h"
#include "mirror.h"
#include "testkit/flight.h"

namespace longspan::testing {

class DeviceFlight {
 public:
  /// The workspace is the communicator's.
  static Result<std::unique_ptr<DeviceFlight>> make(const tool::Inputs& inputs,
                                                    std::shared_ptr<const Call> call,
                                                    std::shared_ptr<Communicator> communicator,
                                                    const Device& device);
  ~DeviceFlight();

  /// Puts other inputs of the same problem, lengths included, where the call looks, and NaN in all
  /// that it writes. Complete on return.
  Status load(const tool::Inputs& inputs);
  Status forward(Engine& engine, Stream stream);
  Status backward(Engine& engine, Stream stream);
  /// Puts other lengths where the call looks. Complete on return.
  Status load_lengths(std::span<const int32_t> q, std::span<const int32_t> k);
  /// Queues both.
  Status queue(Engine& engine, Stream stream);
  /// All results, one behind the other; an error where an element is NaN.
  Result<std::vector<std::byte>> results();
  /// Copies the results back, into tensors that stay this flight's.
  Result<tool::ResultTensors*> download();
  /// How many elements of one of the results ("o", "dq", ...) are no NaN.
  Result<int64_t> numbers(std::string_view name);

 private:
  DeviceFlight(std::shared_ptr<Communicator> communicator, const Device& device)
      : communicator_(std::move(communicator)), device_(device), mirror_(device) {}
  Status place(const tool::Inputs& inputs, std::shared_ptr<const Call> call);
  Status place_memory(const Call& call);
  Status place_lengths(const tool::Inputs& inputs);

  struct Block {
    void* data;
    size_t bytes;
  };

  std::shared_ptr<Communicator> communicator_;
  Device device_;
  testkit::Flight host_;
  tool::Mirror mirror_;
  ForwardOperands forward_;
  BackwardOperands backward_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Block> scratch_;  // saved buffers and the workspace
  Saved saved_;
  Workspace workspace_;
  std::shared_ptr<void> lengths_q_, lengths_k_;
};

}  // namespace longspan::testing
