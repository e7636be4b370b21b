#include "cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

namespace longspan::cuda {
namespace {

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

Status status(int code, std::string_view what) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // told here once, not by the launch that comes next
  const bool memory = error == cudaErrorMemoryAllocation;
  return Error{memory ? ErrorCode::kOutOfMemory : ErrorCode::kDriver,
               fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)),
               "cuda"};
}

DeviceScope::DeviceScope(int ordinal) {
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current == ordinal) return;
  if (cudaSetDevice(ordinal) == cudaSuccess) previous_ = current;
}

DeviceScope::~DeviceScope() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

CaptureIsNoHindrance::CaptureIsNoHindrance() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  previous_ = static_cast<int>(mode);
}

CaptureIsNoHindrance::~CaptureIsNoHindrance() {
  auto mode = static_cast<cudaStreamCaptureMode>(previous_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

Result<Memory> Memory::make(size_t bytes) {
  Memory memory;
  if (bytes == 0) return memory;
  LONGSPAN_CHECK_OK(
      status(cudaMalloc(&memory.data_, bytes), fmt::format("allocating {} bytes", bytes)));
  memory.bytes_ = bytes;
  return memory;
}

Result<Memory> Memory::copy_of(const void* host, size_t bytes) {
  LONGSPAN_TRY(Memory memory, make(bytes));
  LONGSPAN_CHECK_OK(copy(memory.data(), host, bytes));
  return memory;
}

Memory::~Memory() {
  if (data_ != nullptr) cudaFree(data_);
}

Result<OwnedStream> OwnedStream::make() {
  cudaStream_t stream = nullptr;
  LONGSPAN_CHECK_OK(
      status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
  return OwnedStream({stream});
}

OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr) cudaStreamDestroy(native(stream_));
}

Result<Event> Event::make() {
  cudaEvent_t event = nullptr;
  LONGSPAN_CHECK_OK(
      status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
  return Event(event);
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}

Status Event::record(Stream stream) const {
  return status(cudaEventRecord(static_cast<cudaEvent_t>(handle_), native(stream)),
                "recording an event");
}

Status Event::hold(Stream stream) const {
  return status(cudaStreamWaitEvent(native(stream), static_cast<cudaEvent_t>(handle_), 0),
                "waiting for an event");
}

bool Event::reached() const {
  const CaptureIsNoHindrance relaxed;
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(handle_));
  if (state != cudaSuccess) cudaGetLastError();  // no error is left behind
  return state != cudaErrorNotReady;
}

std::shared_ptr<void> filled_host_memory(int value, size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();  // no error is left behind
    return nullptr;
  }
  std::memset(data, value, bytes);
  return {data, [](void* memory) { cudaFreeHost(memory); }};
}

Status copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  LONGSPAN_CHECK_OK(status(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying"));
  // From pageable memory cudaMemcpy returns before the last bytes have arrived, and other streams
  // do not wait for its.
  return status(cudaStreamSynchronize(cudaStreamLegacy), "copying");
}

Status fill(void* device, int value, size_t bytes) {
  if (bytes == 0) return {};
  LONGSPAN_CHECK_OK(status(cudaMemset(device, value, bytes), "filling memory"));
  return status(cudaStreamSynchronize(nullptr), "filling memory");
}

Status copy_on_device(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return {};
  return status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)),
                "copying between ranks");
}

Result<uint64_t> bus_address(int ordinal) {
  uint64_t address = 0;
  for (const cudaDeviceAttr part :
       {cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId}) {
    int value = 0;
    LONGSPAN_CHECK_OK(status(cudaDeviceGetAttribute(&value, part, ordinal),
                             fmt::format("looking where device {} is", ordinal)));
    address = address << 16 | static_cast<uint16_t>(value);
  }
  return address;
}

Status enable_peer(int from, int to) {
  if (from == to) return {};
  const DeviceScope scope(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // no error is left behind
    return {};
  }
  return status(error, fmt::format("giving device {} access to device {}", from, to));
}

Status synchronize(Stream stream) {
  return status(cudaStreamSynchronize(native(stream)), "synchronising a stream");
}

Status synchronize_device() { return status(cudaDeviceSynchronize(), "synchronising a device"); }

Status fill_on_device(void* data, int value, size_t bytes, Stream stream) {
  return status(cudaMemsetAsync(data, value, bytes, native(stream)), "filling memory");
}

Result<bool> capturing(Stream stream) {
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  LONGSPAN_CHECK_OK(status(cudaStreamIsCapturing(native(stream), &state), "asking for capture"));
  return state == cudaStreamCaptureStatusActive;
}

}  // namespace longspan::cuda
