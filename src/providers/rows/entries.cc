#include "providers/rows/entries.h"

namespace longspan::rows {

std::vector<DeviceEntry> device_entries(std::span<const Entry> entries) {
  std::vector<DeviceEntry> table;
  DeviceEntry next;
  for (const Entry& e : entries) {
    next = {e.q_row, e.k_row, next.q_begin + next.nq, next.k_begin + next.nk, e.nq, e.nk};
    table.push_back(next);
  }
  return table;
}

EntryList list_of(std::span<const Entry> entries, const void* on_device) {
  EntryList list{.entries = static_cast<const DeviceEntry*>(on_device),
                 .count = static_cast<int64_t>(entries.size())};
  for (const Entry& e : entries) {
    list.rows_q += e.nq;
    list.rows_k += e.nk;
  }
  return list;
}

int64_t key_heads(const TileProblem& p) { return (p.heads_q - 1 + p.group_offset) / p.group + 1; }

}  // namespace longspan::rows
