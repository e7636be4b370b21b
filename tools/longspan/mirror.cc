#include "mirror.h"

#include <utility>

namespace longspan::tool {

Result<void*> Mirror::take(const void* host, size_t bytes) {
  LONGSPAN_TRY(std::shared_ptr<void> memory, allocate_on(device_, bytes));
  LONGSPAN_CHECK_OK(copy_bytes(device_, memory.get(), host, bytes));
  memory_.push_back(std::move(memory));
  return memory_.back().get();
}

Result<TensorView> Mirror::copy_of(const TensorView& host) {
  if (!device_.is_cuda() || host.data == nullptr) return host;
  TensorView view = host;
  LONGSPAN_TRY(view.data, take(host.data, static_cast<size_t>(host.extent_bytes())));
  if (host.pages == nullptr) return view;
  const size_t bytes = static_cast<size_t>(host.batch) * sizeof(int32_t);
  LONGSPAN_TRY(void* const table, take(host.pages, bytes));
  view.pages = static_cast<const int32_t*>(table);
  return view;
}

Result<ActualLengths> Mirror::copy_of(const ActualLengths& host) {
  if (!device_.is_cuda() || host.q.empty()) return host;
  LONGSPAN_TRY(void* const q, take(host.q.data(), host.q.size_bytes()));
  LONGSPAN_TRY(void* const k, take(host.k.data(), host.k.size_bytes()));
  return ActualLengths{.q = {static_cast<const int32_t*>(q), host.q.size()},
                       .k = {static_cast<const int32_t*>(k), host.k.size()}};
}

Result<TensorView> Mirror::twin_of(Tensor& host) {
  LONGSPAN_TRY(TensorView view, copy_of(host.view));
  if (device_.is_cuda() && view.data != nullptr) twins_.push_back({&host, view.data});
  return view;
}

Status Mirror::upload() const {
  for (const Twin& twin : twins_) {
    LONGSPAN_CHECK_OK(copy_bytes(device_, twin.data, twin.host->view.data,
                                 static_cast<size_t>(twin.host->view.extent_bytes())));
  }
  return {};
}

Status Mirror::download() const {
  for (const Twin& twin : twins_) {
    LONGSPAN_CHECK_OK(copy_bytes(device_, twin.host->view.data, twin.data,
                                 static_cast<size_t>(twin.host->view.extent_bytes())));
  }
  return {};
}

}  // namespace longspan::tool
