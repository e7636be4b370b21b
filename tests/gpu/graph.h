// What a stream was told while it was captured, and its replay.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::testing {

class Graph {
 public:
  Graph(Stream stream, const std::function<Status()>& body) : stream_(native(stream)) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const Status status = body();
    EXPECT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphUpload(executable_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }

  /// Queues one replay.
  void launch() const { EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess); }
  void replay() const {
    launch();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

 private:
  static cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace longspan::testing
