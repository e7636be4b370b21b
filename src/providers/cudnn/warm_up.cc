#include "providers/cudnn/warm_up.h"

#include <cuda_runtime_api.h>

#include "cuda/runtime.h"

namespace longspan::cudnn {
namespace {

constexpr size_t kTensor = size_t{1} << 20;  // in the place of every tensor

Status capture(const Graph& graph) {
  LONGSPAN_TRY(const cuda::Memory memory, cuda::Memory::make(graph.workspace_bytes() + kTensor));
  LONGSPAN_TRY(const cuda::OwnedStream owned, cuda::OwnedStream::make());
  Arguments arguments;
  arguments.pointers.fill(static_cast<char*>(memory.data()) + graph.workspace_bytes());
  float scale = 1;
  arguments[Slot::kScale] = &scale;
  const auto stream = static_cast<cudaStream_t>(owned.get().handle);
  LONGSPAN_CHECK_OK(cuda::status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                                 "warming up a graph"));
  const Status executed = graph.execute(arguments, memory.data(), owned.get());
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  if (captured != nullptr) cudaGraphDestroy(captured);
  LONGSPAN_CHECK_OK(executed);
  return cuda::status(ended, "warming up a graph");
}

}  // namespace

void warm_up(const Graph& graph) {
  // A failure must not be taken for one of the calls that follow.
  if (!capture(graph).ok()) cudaGetLastError();
}

}  // namespace longspan::cudnn
