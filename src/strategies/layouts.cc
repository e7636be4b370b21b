#include "strategies/layouts.h"

#include <utility>

namespace longspan {

std::vector<Fill> padding(const Shard& shard, std::initializer_list<BufferId> buffers) {
  std::vector<Fill> fills;
  for (const Run& run : shard.runs) {
    for (const BufferId buffer : buffers) {
      fills.push_back({buffer, run.row + run.valid, run.tokens.size() - run.valid});
    }
  }
  return fills;
}

Fill whole(const Emission& e, BufferId buffer) {
  return {buffer, 0, e.builder.buffer(buffer).rows};
}

std::vector<Fill> attended_rows(const Emission& e, BufferId buffer) {
  std::vector<Fill> rows;
  for (const Run& run : e.q.runs) rows.push_back({buffer, run.row, run.valid});
  return rows;
}

bool keeps_heads(const Emission& e) {
  return e.arrangement.ways > 1 && e.setting.forward == e.setting.backward;
}

BufferId head_layout(Emission& e, Quantity quantity, DType dtype, bool saved) {
  Buffer buffer =
      e.head_buffer(quantity, dtype, std::string(name(quantity)) + "_heads" + e.label());
  if (!saved) return e.workspace(std::move(buffer));
  buffer.space = Space::kSaved;
  return e.builder.add(std::move(buffer));
}

BufferId exact_o(Emission& e) {
  const Shard& shard = e.setting.partition.q(e.rank);
  return e.builder.add({.space = Space::kSaved,
                        .quantity = Quantity::kO,
                        .name = "o_exact",
                        .dtype = accumulator(e.problem.dtype),
                        .rows = shard.rows,
                        .heads = e.problem.heads_q,
                        .dim = e.problem.dim_v,
                        .runs = e.own_q.runs});
}

BufferId accumulator_buffer(Emission& e, Quantity quantity) {
  return e.workspace(e.head_buffer(quantity, accumulator(e.problem.dtype),
                                   std::string(name(quantity)) + "_sum" + e.label()));
}

}  // namespace longspan
