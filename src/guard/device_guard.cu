#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "cuda/device_view.cuh"
#include "cuda/runtime.h"
#include "guard/device_guard.h"

namespace longspan::guard {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kPoisonBlocks = 264;  // two for each multiprocessor

/// Of host memory that the device reaches: only the device makes it full, only the host empty.
struct Mailbox {
  enum State : int32_t { kEmpty, kFull };
  int32_t state = kEmpty;
  Violation violation;
};

/// What check() leaves for poison().
struct Scratch {
  int32_t broken;
};
static_assert(sizeof(Scratch) <= kScratchBytes);

struct Check {
  const Predicate* predicates;
  int32_t count;
  const int32_t* arrays[kArrays];
  Scratch* scratch;
  Mailbox* mailbox;
  int32_t* sending;  // of the device's memory: 1 while an execution has the mailbox
  bool traps;
};

__device__ int32_t value_of(const Check& p, const Predicate& predicate) {
  return p.arrays[static_cast<size_t>(predicate.array)][predicate.index];
}

/// The host may empty the box at any time. Executions on other streams may want it too: who comes
/// while another sends, or finds it full, leaves it, as the host hears of one violation at a time.
__device__ void send(const Check& p, const Violation& violation) {
  if (atomicCAS(p.sending, 0, 1) != 0) return;
  __threadfence();
  volatile int32_t* const state = &p.mailbox->state;
  if (*state == Mailbox::kEmpty) {
    p.mailbox->violation = violation;
    __threadfence_system();
    *state = Mailbox::kFull;
  }
  __threadfence();
  atomicExch(p.sending, 0);
}

/// One block; the violation of the smallest number wins, so that reports do not depend on timing.
__global__ void __launch_bounds__(kThreads) check_kernel(const __grid_constant__ Check p) {
  __shared__ int32_t first;
  if (threadIdx.x == 0) first = p.count;
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.count; i += kThreads) {
    const int32_t value = value_of(p, p.predicates[i]);
    if (value < p.predicates[i].least || value > p.predicates[i].most) {
      atomicMin(&first, i);
      break;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  p.scratch->broken = first < p.count ? 1 : 0;
  if (first == p.count) return;
  if (p.traps) __trap();
  send(p, {p.predicates[first], value_of(p, p.predicates[first])});
}

struct Output {
  cuda::DeviceView view;
  int64_t rows;
  int32_t heads;
  int32_t element;  // bytes
};

struct Outputs {
  const Scratch* scratch;
  Output outputs[kMostOutputs];
  int32_t count;
};

/// All bytes of a row of one head: NaN in every type. A block has rows in turn.
__device__ void poison_output(const Output& output) {
  const int64_t units = output.rows * output.heads;
  const int32_t halves = output.view.dim * output.element / 2;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t place = output.view.offset(unit / output.heads, unit % output.heads);
    auto* const to = reinterpret_cast<uint16_t*>(output.view.data + place * output.element);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < halves; i += kThreads) to[i] = 0xffff;
  }
}

__global__ void __launch_bounds__(kThreads) poison_kernel(const __grid_constant__ Outputs p) {
  if (p.scratch->broken == 0) return;
  for (int32_t i = 0; i < p.count; ++i) poison_output(p.outputs[i]);
}

class DeviceReport final : public Report {
 public:
  static Result<std::shared_ptr<DeviceReport>> make(int ordinal) {
    const cuda::DeviceScope scope(ordinal);
    const int32_t free = 0;
    LONGSPAN_TRY(cuda::Memory sending, cuda::Memory::copy_of(&free, sizeof free));
    Mailbox* mailbox = nullptr;
    LONGSPAN_CHECK_OK(cuda::status(
        cudaHostAlloc(&mailbox, sizeof *mailbox, cudaHostAllocMapped | cudaHostAllocPortable),
        "allocating a guard's report"));
    *mailbox = {};
    return std::shared_ptr<DeviceReport>(new DeviceReport(mailbox, std::move(sending)));
  }
  DeviceReport(const DeviceReport&) = delete;
  DeviceReport& operator=(const DeviceReport&) = delete;
  ~DeviceReport() override { cudaFreeHost(mailbox_); }

  std::optional<Violation> take() override {
    const std::atomic_ref<int32_t> state(mailbox_->state);
    if (state.load(std::memory_order_acquire) != Mailbox::kFull) return std::nullopt;
    const Violation violation = mailbox_->violation;
    state.store(Mailbox::kEmpty, std::memory_order_release);
    return violation;
  }
  Mailbox* mailbox() const { return mailbox_; }
  int32_t* sending() const { return static_cast<int32_t*>(sending_.data()); }

 private:
  DeviceReport(Mailbox* mailbox, cuda::Memory sending)
      : mailbox_(mailbox), sending_(std::move(sending)) {}
  Mailbox* mailbox_;
  cuda::Memory sending_;
};

class DeviceGuard final : public Guard {
 public:
  DeviceGuard(cuda::Memory predicates, int ordinal, bool traps,
              std::shared_ptr<DeviceReport> report)
      : predicates_(std::move(predicates)),
        ordinal_(ordinal),
        traps_(traps),
        report_(std::move(report)) {}

  Status check(const Arrays& arrays, void* scratch, Stream stream) const override {
    const cuda::DeviceScope scope(ordinal_);
    Check p{.predicates = static_cast<const Predicate*>(predicates_.data()),
            .count = static_cast<int32_t>(predicates_.size() / sizeof(Predicate)),
            .arrays = {},
            .scratch = static_cast<Scratch*>(scratch),
            .mailbox = report_->mailbox(),
            .sending = report_->sending(),
            .traps = traps_};
    for (size_t i = 0; i < kArrays; ++i) p.arrays[i] = arrays[i];
    check_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(p);
    return cuda::status(cudaGetLastError(), "checking promises");
  }

  Status poison(std::span<const TensorView> outputs, const void* scratch,
                Stream stream) const override {
    const cuda::DeviceScope scope(ordinal_);
    Outputs p{.scratch = static_cast<const Scratch*>(scratch), .outputs = {}, .count = 0};
    for (const TensorView& view : outputs) {
      if (view.data == nullptr) continue;
      p.outputs[p.count++] = {.view = cuda::device_view(view),
                              .rows = view.rows(),
                              .heads = static_cast<int32_t>(view.heads),
                              .element = static_cast<int32_t>(size_of(view.dtype))};
    }
    poison_kernel<<<kPoisonBlocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(p);
    return cuda::status(cudaGetLastError(), "poisoning outputs");
  }

 private:
  cuda::Memory predicates_;
  int ordinal_;
  bool traps_;
  std::shared_ptr<DeviceReport> report_;
};

/// Kernels must not be loaded while a stream is captured.
Status load_kernels() {
  cudaFuncAttributes attributes;
  LONGSPAN_CHECK_OK(
      cuda::status(cudaFuncGetAttributes(&attributes, check_kernel), "loading a guard"));
  return cuda::status(cudaFuncGetAttributes(&attributes, poison_kernel), "loading a guard");
}

}  // namespace

Result<std::shared_ptr<Report>> make_device_report(const Device& device) {
  LONGSPAN_TRY(std::shared_ptr<DeviceReport> report, DeviceReport::make(device.ordinal));
  return std::shared_ptr<Report>(std::move(report));
}

Result<std::unique_ptr<const Guard>> make_device_guard(std::vector<Predicate> predicates,
                                                       GuardPolicy policy, const Device& device,
                                                       std::shared_ptr<Report> report) {
  const cuda::DeviceScope scope(device.ordinal);
  LONGSPAN_CHECK_OK(load_kernels());
  LONGSPAN_TRY(cuda::Memory table,
               cuda::Memory::copy_of(predicates.data(), predicates.size() * sizeof(Predicate)));
  return std::unique_ptr<const Guard>(
      std::make_unique<DeviceGuard>(std::move(table), device.ordinal, policy == GuardPolicy::kTrap,
                                    std::static_pointer_cast<DeviceReport>(std::move(report))));
}

}  // namespace longspan::guard
