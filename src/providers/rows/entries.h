// Rows of tiles that one execution works on, on the host and on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"

namespace longspan::rows {

/// Features::device_lengths: which tokens the rows of an entry are, and its band, whose edges are
/// within +-kUnbounded.
struct EntryTokens {
  int64_t sequence = 0;
  int64_t q_begin = 0, q_stride = 1;
  int64_t k_begin = 0, k_stride = 1;
  int64_t lo = -kUnbounded, hi = kUnbounded;
  bool operator==(const EntryTokens&) const = default;
};

/// Rows of a trimmed tile, or of a part of one.
struct Entry {
  int64_t q_row = 0, k_row = 0;
  int64_t nq = 0, nk = 0;
  EntryTokens tokens = {};
  bool operator==(const Entry&) const = default;
};

/// An Entry as kernels see it. Its rows lie in scratch memory from q_begin and k_begin on,
/// those of all entries packed. Cut entries leave gaps: 0 in what an engine reads (its statistics:
/// +inf, without weight), and not looked at in what it writes.
struct DeviceEntry {
  int64_t q_row = 0, k_row = 0;
  int64_t q_begin = 0, k_begin = 0;
  int64_t nq = 0, nk = 0;
};

/// The entries of one execution.
struct EntryList {
  const DeviceEntry* entries = nullptr;  // on the device
  int64_t count = 0;
  int64_t rows_q = 0, rows_k = 0;  // of all
};

/// The entries packed one behind the other.
std::vector<DeviceEntry> device_entries(std::span<const Entry> entries);

/// Their list, `on_device` being where device_entries() of them lies.
EntryList list_of(std::span<const Entry> entries, const void* on_device);

/// Key heads that query heads read: the first ones of those given.
int64_t key_heads(const TileProblem& problem);

}  // namespace longspan::rows
