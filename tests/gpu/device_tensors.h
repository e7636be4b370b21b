// Copies of a test's host tensors on the current device, with canaries around them.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"

namespace longspan::testing {

/// Device memory that notices what is written beside it.
class GuardedMemory {
 public:
  /// A copy of `bytes` bytes of host memory, at its place modulo 16.
  static Result<GuardedMemory> copy_of(const void* host, size_t bytes);
  /// `bytes` bytes that are NaN in every type.
  static Result<GuardedMemory> poisoned(size_t bytes);

  void* data() const { return static_cast<std::byte*>(memory_.data()) + before_; }
  Status overwrite(const std::vector<std::byte>& bytes);
  /// The bytes; an error when a canary changed.
  Result<std::vector<std::byte>> read() const;

 private:
  cuda::Memory memory_;
  size_t before_ = 0;  // canary bytes
  size_t bytes_ = 0;
};

/// The tensors of one call. All functions leave host memory as it is, apart from copy_back().
class DeviceTensors {
 public:
  /// A view of the device of what `host` views; null for null.
  Result<TensorView> input(std::string name, const TensorView& host);
  Result<TensorView> output(std::string name, const TensorView& host);
  /// Makes the views of a call, which are of host memory, views of copies.
  Status move(ForwardTiles& call);
  Status move(BackwardTiles& call);
  /// Copies all host tensors once more.
  Status upload();
  /// Copies the elements of the outputs back. An error when a canary, an input, or memory between
  /// an output's rows changed.
  Status copy_back();

 private:
  struct Copy {
    std::string name;
    TensorView host;
    bool written = false;
    std::vector<std::byte> uploaded;
    GuardedMemory memory;
    cuda::Memory pages;
  };

  Result<TensorView> add(std::string name, const TensorView& host, bool written);
  Status move(ScoreTerms& terms);

  std::deque<Copy> copies_;
};

}  // namespace longspan::testing
