// Checks of single tensors before anything moves. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "longspan/engine.h"

namespace longspan::bind {

Error invalid(std::string message);

/// A tensor of the call and what it must look like: this rank's rows of a side, or a whole
/// [batch, seq] where there is no shard.
struct Named {
  std::string_view name;
  const TensorView* view = nullptr;
  bool output = false;
  const Shard* shard = nullptr;
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  DType dtype = DType::kF32;
  bool paged = false;
};

/// Type, shape, strides, alignment and page table, whose entries are looked at where they lie in
/// host memory. `page`: Problem::page.
Status check_view(const Named& tensor, int64_t page, bool on_host);

/// Whether a tensor is there exactly when `wanted`, which `key` of the problem text asks for.
Status present(std::string_view name, const TensorView& view, bool wanted, std::string_view key);

/// Addresses of elements.
struct Bytes {
  uintptr_t begin;
  uintptr_t end;
};

inline bool overlap(Bytes a, Bytes b) { return a.begin < b.end && b.begin < a.end; }

/// A tensor whose view has been checked, with its bytes; not empty.
struct Placed {
  std::string_view name;
  const TensorView* view;
  Bytes bytes;
  bool output;
};

/// Whether outputs have memory of their own; tensors may interleave in one allocation.
Status check_overlap(std::span<const Placed> tensors, Bytes workspace);

/// Lengths, presence of the side tensors and range of the side values. Keys of dropout in device
/// memory are read on CUDA devices alone.
Status check_sides(const Problem& problem, const SideOperands& side, bool on_host);

}  // namespace longspan::bind
