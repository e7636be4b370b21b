// CUDA memory, streams and events with one owner each. No CUDA header is needed to include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::cuda {

/// OK for 0, else a driver error with `what`; cudaGetLastError() has none any more.
Status status(int code, std::string_view what);

/// Makes `ordinal` the calling thread's device until it is destroyed.
class DeviceScope {
 public:
  explicit DeviceScope(int ordinal);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = -1;
};

/// Lets the calling thread allocate, and ask events, while streams are captured into graphs.
class CaptureIsNoHindrance {
 public:
  CaptureIsNoHindrance();
  ~CaptureIsNoHindrance();
  CaptureIsNoHindrance(const CaptureIsNoHindrance&) = delete;
  CaptureIsNoHindrance& operator=(const CaptureIsNoHindrance&) = delete;

 private:
  int previous_;
};

/// Memory of the device that was current when it was made.
class Memory {
 public:
  Memory() = default;
  static Result<Memory> make(size_t bytes);
  /// A copy of host memory, complete on return.
  static Result<Memory> copy_of(const void* host, size_t bytes);
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  void* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A stream of the device that was current when it was made; it does not wait for the default one.
class OwnedStream {
 public:
  static Result<OwnedStream> make();
  OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, {})) {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_.handle, other.stream_.handle);
    return *this;
  }
  ~OwnedStream();
  Stream get() const { return stream_; }

 private:
  explicit OwnedStream(Stream stream) : stream_(stream) {}
  Stream stream_;
};

/// Marks a place in a stream. Without timing.
class Event {
 public:
  static Result<Event> make();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  Status record(Stream stream) const;
  /// The stream goes on when the last recorded place has been reached.
  Status hold(Stream stream) const;
  /// Whether the device has passed the last recorded place; true when there is none.
  bool reached() const;

 private:
  explicit Event(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

/// Host memory that copy engines read, filled with `value`; null where there is none to be had.
std::shared_ptr<void> filled_host_memory(int value, size_t bytes);

/// Complete on return; either side may be the host's memory or a device's.
Status copy(void* to, const void* from, size_t bytes);
/// Complete on return.
Status fill(void* device, int value, size_t bytes);
/// Between any two devices of the process, in stream order.
Status copy_on_device(void* to, const void* from, size_t bytes, Stream stream);
/// Lets kernels and copies of device `from` reach memory of device `to`.
Status enable_peer(int from, int to);
Status synchronize(Stream stream);
/// Which of the machine's devices it is: the same number in every process.
Result<uint64_t> bus_address(int ordinal);
/// Everything queued on the current device, by anybody.
Status synchronize_device();
/// Sets every byte, in stream order.
Status fill_on_device(void* data, int value, size_t bytes, Stream stream);
/// Whether the stream is being captured into a graph.
Result<bool> capturing(Stream stream);

}  // namespace longspan::cuda
