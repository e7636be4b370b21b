#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "device_clock.h"

namespace longspan::tool {
namespace {

Status status(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  return Error{ErrorCode::kDriver, fmt::format("{}: {}", what, cudaGetErrorString(code)), "bench"};
}

class CudaRecording : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }

  Status replay() override { return status(cudaGraphLaunch(graph_, stream_), "replaying a graph"); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class CudaClock : public DeviceClock {
 public:
  CudaClock(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  ~CudaClock() override {
    cudaSetDevice(ordinal_);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  Stream stream() const override { return {stream_}; }

  Status mark() override {
    LONGSPAN_CHECK_OK(status(cudaSetDevice(ordinal_), "choosing a device"));
    if (marks_ == events_.size()) {
      cudaEvent_t event = nullptr;
      LONGSPAN_CHECK_OK(status(cudaEventCreate(&event), "making an event"));
      events_.push_back(event);
    }
    return status(cudaEventRecord(events_[marks_++], stream_), "marking a stream");
  }

  Result<std::vector<double>> laps() override {
    const size_t marks = std::exchange(marks_, 0);
    LONGSPAN_CHECK_OK(status(cudaStreamSynchronize(stream_), "waiting for a stream"));
    std::vector<double> laps;
    for (size_t i = 1; i < marks; ++i) {
      float milliseconds = 0;
      LONGSPAN_CHECK_OK(status(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]),
                               "reading events"));
      laps.push_back(1e3 * static_cast<double>(milliseconds));
    }
    return laps;
  }

  Result<std::unique_ptr<Recording>> record(const std::function<Status()>& queue) override {
    LONGSPAN_CHECK_OK(status(cudaSetDevice(ordinal_), "choosing a device"));
    LONGSPAN_CHECK_OK(status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                             "beginning a capture"));
    const Status queued = queue();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (!queued.ok() || ended != cudaSuccess) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();  // a broken capture is this call's affair alone
      LONGSPAN_CHECK_OK(queued);
      return status(ended, "ending a capture").error();
    }
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    LONGSPAN_CHECK_OK(status(made, "instantiating a graph"));
    return std::unique_ptr<Recording>(std::make_unique<CudaRecording>(executable, stream_));
  }

 private:
  int ordinal_;
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t marks_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceClock>> make_cuda_clock(const Device& device) {
  LONGSPAN_CHECK_OK(status(cudaSetDevice(device.ordinal), "choosing a device"));
  cudaStream_t stream = nullptr;
  LONGSPAN_CHECK_OK(
      status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return std::unique_ptr<DeviceClock>(std::make_unique<CudaClock>(device.ordinal, stream));
}

}  // namespace longspan::tool
