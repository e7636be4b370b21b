// Tensors of a rank on the device that computes.
#pragma once

#include <memory>
#include <vector>

#include "longspan/device.h"
#include "longspan/problem.h"
#include "longspan/tensor.h"
#include "tensors.h"

namespace longspan::tool {

/// On the host the tensors themselves; on a CUDA device copies of them with the same strides.
class Mirror {
 public:
  explicit Mirror(Device device) : device_(std::move(device)) {}

  /// A view with the same contents on the device, page tables included. Absent views stay absent.
  Result<TensorView> copy_of(const TensorView& host);
  /// Likewise.
  Result<ActualLengths> copy_of(const ActualLengths& host);
  /// The same for a tensor that upload() and download() bring up to date.
  Result<TensorView> twin_of(Tensor& host);
  /// Twins get the host's contents, or give theirs to the host.
  Status upload() const;
  Status download() const;

 private:
  struct Twin {
    Tensor* host = nullptr;
    void* data = nullptr;
  };

  Result<void*> take(const void* host, size_t bytes);

  Device device_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Twin> twins_;
};

}  // namespace longspan::tool
