// Addresses of rows for cuDNN's ragged graphs, written on the device.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"
#include "providers/rows/entries.h"

namespace longspan::cudnn {

using rows::DeviceEntry;
using rows::EntryList;
using rows::EntryTokens;

/// Where one tensor of a ragged graph has its rows.
struct RaggedTensor {
  TensorView view;    // in place; without rows: packed in scratch memory
  int64_t first = 0;  // elements of the view before the address that cuDNN is given
  int64_t width = 0;  // elements of a packed row
  bool keys = false;  // rows are those of keys
};

/// Where entries end at lengths that come with the call: the list as it is then, whose rows stay
/// where they are in scratch memory. All on the device.
struct Cutting {
  const EntryTokens* tokens = nullptr;  // of each entry; null: entries are there as a whole
  ActualLengths lengths;
  DeviceEntry* entries = nullptr;                      // scratch
  int32_t *lengths_q = nullptr, *lengths_k = nullptr;  // scratch: of each declared entry
};

/// Addresses of ragged entries, in elements: `count` is rounded up to `batch` by empty ones.
struct OffsetTables {
  EntryList list;
  int64_t batch = 0;
  std::array<RaggedTensor, 9> tensors;
  int64_t* tables = nullptr;  // one for each tensor, of batch + 1 and rounded up to 16 bytes
  Cutting cutting;            // done by the same launch
};

/// From one table to the next, in elements.
inline constexpr int64_t offset_table_size(int64_t batch) { return (batch + 2) / 2 * 2; }

Status write_offsets(const OffsetTables& tables, Stream stream);

}  // namespace longspan::cudnn
