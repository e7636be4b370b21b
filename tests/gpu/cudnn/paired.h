// Two ways to do the same on a device, timed in pairs.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/runtime.h"

namespace longspan::testing {

using Clock = std::chrono::steady_clock;
using Call = std::function<void()>;

inline constexpr int kMostPairs = 30;
inline constexpr int kFewestPairs = 9;
inline constexpr double kSecondsPerCase =
    0.5;  // of a direction and mode; long calls get fewer pairs
inline constexpr double kSampleMicroseconds = 400;

inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().text());
}
template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}
inline void must(cudaError_t code) { must(cuda::status(code, "measuring")); }

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Microseconds on the device of one of `count` calls.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    must(cudaEventCreate(&begin_));
    must(cudaEventCreate(&end_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  double time(const Call& call, int count) {
    must(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < count; ++i) call();
    must(cudaEventRecord(end_, stream_));
    must(cudaEventSynchronize(end_));
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1000.0 * milliseconds / count;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// A call in a CUDA graph.
class Replay {
 public:
  Replay(const Call& call, cudaStream_t stream) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    call();
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&executable_, graph, 0));
    must(cudaGraphDestroy(graph));
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() { cudaGraphExecDestroy(executable_); }
  void operator()() const { must(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

struct Paired {
  double median_us = 0, direct_us = 0;
  double ratio = 0;  // median of paired ratios, ours over direct
  int wins = 0, pairs = 0;
};

inline Paired paired(const Call& ours, const Call& direct, cudaStream_t stream) {
  Stopwatch watch(stream);
  for (int i = 0; i < 2; ++i) {
    watch.time(ours, 1);
    watch.time(direct, 1);
  }
  const double once = watch.time(direct, 1);
  const int count = std::clamp(static_cast<int>(kSampleMicroseconds / once), 1, 20);
  const int pairs = std::clamp(static_cast<int>(kSecondsPerCase * 1e6 / (2 * once * count)),
                               kFewestPairs, kMostPairs);
  std::vector<double> mine, theirs, ratios;
  Paired result{.pairs = pairs};
  for (int i = 0; i < pairs; ++i) {
    const bool first = i % 2 == 0;
    if (first) mine.push_back(watch.time(ours, count));
    theirs.push_back(watch.time(direct, count));
    if (!first) mine.push_back(watch.time(ours, count));
    ratios.push_back(mine.back() / theirs.back());
    result.wins += ratios.back() < 1;
  }
  result.median_us = median(mine);
  result.direct_us = median(theirs);
  result.ratio = median(ratios);
  return result;
}

/// Median microseconds of the host in a call; the device is never far behind.
inline double host_time(const Call& call, cudaStream_t stream) {
  std::vector<double> samples;
  const auto start = Clock::now();
  for (int i = 0; i < 48; ++i) {
    if (i >= 8 && Clock::now() - start > std::chrono::milliseconds(60)) break;
    const auto begin = Clock::now();
    call();
    samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (i % 8 == 7) must(cudaStreamSynchronize(stream));
  }
  return median(samples);
}

}  // namespace longspan::testing
