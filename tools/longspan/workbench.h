// All that a rank's calls work on, on the device that computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "longspan/engine.h"
#include "mirror.h"
#include "results.h"
#include "shards.h"

namespace longspan::tool {

/// Operands, saved buffers and workspace of the calls of one rank. The workspace is the
/// communicator's memory. Not copied: operands point into it.
class Workbench {
 public:
  Workbench(Device on, std::shared_ptr<Communicator> communicator)
      : device(on), mirror(std::move(on)), communicator_(std::move(communicator)) {}
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  ~Workbench();

  /// Allocates everything and uploads the inputs. `inputs` and `results` outlive this;
  /// mirror.upload() and download() move the results.
  Status set_up(const Call& call, const ShardInputs& inputs, ResultTensors& results);

  Status poison_saved() const;
  Status poison_workspace() const;
  /// Of workspace and saved buffers.
  int64_t bytes() const;

  Device device;
  Mirror mirror;
  ForwardOperands forward;
  BackwardOperands backward;
  Saved saved;
  Workspace workspace;

 private:
  Status make_saved(const Call& call);
  Status make_operands(const Call& call, const ShardInputs& inputs, ResultTensors& results);

  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<void>> memory_;  // of the saved buffers
  std::vector<size_t> saved_bytes_;
};

}  // namespace longspan::tool
