// Buffers and rows that forward and backward lay out alike.
#pragma once

#include <initializer_list>
#include <vector>

#include "strategies/emit.h"

namespace longspan {

/// Rows of a shard that are no tokens.
std::vector<Fill> padding(const Shard& shard, std::initializer_list<BufferId> buffers);
Fill whole(const Emission& emission, BufferId buffer);
/// Rows of tokens that attend steps work on.
std::vector<Fill> attended_rows(const Emission& emission, BufferId buffer);

/// Forward leaves q, k, v, O and LSE in head layout where backward can start from them.
bool keeps_heads(const Emission& emission);
/// A buffer of the selected slice in head layout, kept from forward to backward where `saved`.
BufferId head_layout(Emission& emission, Quantity quantity, DType dtype, bool saved);
/// O in accumulator type at the rows of this rank's tensors, kept from forward to backward.
BufferId exact_o(Emission& emission);
BufferId accumulator_buffer(Emission& emission, Quantity quantity);

/// Runs all slices, on queues in turn, so that one is exchanged while another is computed. `arrive`
/// makes `buffers` of the selected slice and sends what it needs; `leave` computes with them and
/// sends the results.
template <class Arrive, class Leave>
void in_slices(Emission& e, AttendBuffers& buffers, Arrive&& arrive, Leave&& leave) {
  std::vector<AttendBuffers> of_slice;
  std::vector<Arrival> in, out;
  const auto begin = [&](int slice) {
    e.select(slice);
    in.push_back(arrive());
    of_slice.push_back(buffers);
  };
  begin(0);
  for (int i = 0; i < e.slices; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i + 1 < e.slices) begin(i + 1);
    e.select(i);
    buffers = of_slice[at];
    take(e, std::move(in[at]));
    out.push_back(leave());
  }
  for (int i = 0; i < e.slices; ++i) {
    e.select(i);
    take(e, std::move(out[static_cast<size_t>(i)]));
  }
  e.select(0);
}

/// The schedule of backward; returns the most key rows of any part.
int64_t emit_backward(Emission& emission);

}  // namespace longspan
