#include "gpu/device_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace longspan::testing {
namespace {

constexpr size_t kCanary = 256;
constexpr std::byte kCanaryByte{0xA5};

Error changed(const std::string& what) { return {ErrorCode::kInternal, what, "device tensors"}; }

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto* const first = static_cast<const std::byte*>(view.data);
  return {first, first + view.extent_bytes()};
}

/// Zeros the elements of a view, whose first is at `bytes`, and nothing between them.
void blank(const TensorView& view, std::vector<std::byte>& bytes) {
  const int64_t size = size_of(view.dtype);
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      std::memset(bytes.data() + view.offset(row, head) * size, 0,
                  static_cast<size_t>(view.dim * size));
    }
  }
}

void copy_elements(const TensorView& view, const std::vector<std::byte>& from) {
  const int64_t size = size_of(view.dtype);
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      const int64_t place = view.offset(row, head) * size;
      std::memcpy(static_cast<std::byte*>(view.data) + place, from.data() + place,
                  static_cast<size_t>(view.dim * size));
    }
  }
}

}  // namespace

Result<GuardedMemory> GuardedMemory::copy_of(const void* host, size_t bytes) {
  GuardedMemory guarded;
  guarded.before_ = kCanary + reinterpret_cast<uintptr_t>(host) % 16;
  guarded.bytes_ = bytes;
  std::vector<std::byte> all(guarded.before_ + bytes + kCanary, kCanaryByte);
  if (bytes > 0) std::memcpy(all.data() + guarded.before_, host, bytes);
  LONGSPAN_TRY(guarded.memory_, cuda::Memory::copy_of(all.data(), all.size()));
  return Result<GuardedMemory>(std::move(guarded));
}

Result<GuardedMemory> GuardedMemory::poisoned(size_t bytes) {
  // Aligned as workspaces are.
  const auto storage = std::make_unique<std::byte[]>(bytes + 16);
  const size_t misaligned = reinterpret_cast<uintptr_t>(storage.get()) % 16;
  std::byte* const first = storage.get() + (16 - misaligned) % 16;
  std::memset(first, 0xFF, bytes);
  return copy_of(first, bytes);
}

Status GuardedMemory::overwrite(const std::vector<std::byte>& bytes) {
  return cuda::copy(data(), bytes.data(), bytes.size());
}

Result<std::vector<std::byte>> GuardedMemory::read() const {
  std::vector<std::byte> all(memory_.size());
  LONGSPAN_CHECK_OK(cuda::copy(all.data(), memory_.data(), all.size()));
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(before_);
  const auto last = first + static_cast<std::ptrdiff_t>(bytes_);
  const auto whole = [](std::byte value) { return value == kCanaryByte; };
  if (!std::all_of(all.begin(), first, whole)) return changed("memory before it was written");
  if (!std::all_of(last, all.end(), whole)) return changed("memory behind it was written");
  return std::vector<std::byte>(first, last);
}

Result<TensorView> DeviceTensors::input(std::string name, const TensorView& host) {
  return add(std::move(name), host, false);
}

Result<TensorView> DeviceTensors::output(std::string name, const TensorView& host) {
  return add(std::move(name), host, true);
}

Result<TensorView> DeviceTensors::add(std::string name, const TensorView& host, bool written) {
  TensorView view = host;
  if (host.data == nullptr) return view;
  Copy& copy = copies_.emplace_back();
  copy.name = std::move(name);
  copy.host = host;
  copy.written = written;
  copy.uploaded = bytes_of(host);
  LONGSPAN_TRY(copy.memory, GuardedMemory::copy_of(host.data, copy.uploaded.size()));
  view.data = copy.memory.data();
  if (host.pages == nullptr) return view;
  LONGSPAN_TRY(copy.pages, cuda::Memory::copy_of(
                               host.pages, static_cast<size_t>(host.batch) * sizeof(int32_t)));
  view.pages = static_cast<const int32_t*>(copy.pages.data());
  return view;
}

Status DeviceTensors::move(ScoreTerms& terms) {
  LONGSPAN_TRY(terms.slopes, input("slopes", terms.slopes));
  LONGSPAN_TRY(terms.bias, input("bias", terms.bias));
  return {};
}

Status DeviceTensors::move(ForwardTiles& call) {
  LONGSPAN_TRY(call.q, input("q", call.q));
  LONGSPAN_TRY(call.k, input("k", call.k));
  LONGSPAN_TRY(call.v, input("v", call.v));
  LONGSPAN_TRY(call.o, output("o", call.o));
  LONGSPAN_TRY(call.lse, output("lse", call.lse));
  LONGSPAN_TRY(call.max_logit, output("max_logit", call.max_logit));
  return move(call.terms);
}

Status DeviceTensors::move(BackwardTiles& call) {
  LONGSPAN_TRY(call.q, input("q", call.q));
  LONGSPAN_TRY(call.k, input("k", call.k));
  LONGSPAN_TRY(call.v, input("v", call.v));
  LONGSPAN_TRY(call.dout, input("dout", call.dout));
  LONGSPAN_TRY(call.lse, input("lse", call.lse));
  LONGSPAN_TRY(call.delta, input("delta", call.delta));
  LONGSPAN_TRY(call.o, input("o", call.o));
  LONGSPAN_TRY(call.dq, output("dq", call.dq));
  LONGSPAN_TRY(call.dk, output("dk", call.dk));
  LONGSPAN_TRY(call.dv, output("dv", call.dv));
  LONGSPAN_TRY(call.dbias, output("dbias", call.dbias));
  return move(call.terms);
}

Status DeviceTensors::upload() {
  for (Copy& copy : copies_) {
    copy.uploaded = bytes_of(copy.host);
    LONGSPAN_CHECK_OK(copy.memory.overwrite(copy.uploaded));
  }
  return {};
}

Status DeviceTensors::copy_back() {
  for (Copy& copy : copies_) {
    const Result<std::vector<std::byte>> read = copy.memory.read();
    if (!read.ok()) return changed(copy.name + ": " + read.error().message);
    if (!copy.written) {
      if (*read != copy.uploaded) return changed(copy.name + " is an input and was written");
      continue;
    }
    copy_elements(copy.host, *read);
    std::vector<std::byte> between = *read;
    blank(copy.host, between);
    blank(copy.host, copy.uploaded);
    if (between != copy.uploaded)
      return changed(copy.name + ": memory between its rows was written");
  }
  return {};
}

}  // namespace longspan::testing
