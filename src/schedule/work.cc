#include "schedule/work.h"

namespace longspan {
namespace {

const Buffer& at(const Schedule& schedule, BufferId id) {
  return schedule.buffers[static_cast<size_t>(id)];
}

int64_t row_bytes(const Buffer& buffer, int64_t heads) {
  return heads * buffer.dim * size_of(buffer.dtype);
}

}  // namespace

double flops(const Schedule& schedule, const Part& part) {
  int64_t pairs = 0;
  for (const PlacedTile& placed : part.tiles) pairs += area(placed.tile);
  const TileProblem& tiles = schedule.tiles;
  const int64_t dims = schedule.direction == Direction::kForward
                           ? tiles.dim_qk + tiles.dim_v
                           : 3 * tiles.dim_qk + 2 * tiles.dim_v;
  return 2.0 * static_cast<double>(dims * tiles.heads_q) * static_cast<double>(pairs);
}

int64_t bytes_added(const Schedule& schedule, const Part& part) {
  const TileProblem& p = schedule.tiles;
  const bool backward = schedule.direction == Direction::kBackward;
  if (p.features.whole || size_of(p.dtype) > 2) return 0;
  const int64_t queries = p.heads_q * (backward ? p.dim_qk : p.dim_v);
  const int64_t keys = backward ? p.heads_kv * (p.dim_qk + p.dim_v) : 0;
  int64_t elements = 0;
  for (const PlacedTile& placed : part.tiles) {
    elements += placed.tile.q.size() * queries + placed.tile.k.size() * keys;
  }
  constexpr int64_t kBytes = 2 * (2 + 4);  // 16 bits and FP32, each written and read
  return elements * kBytes;
}

double flops(const Schedule& schedule, const Step& step) {
  double sum = 0;
  for (const Part& part : step.parts) sum += flops(schedule, part);
  return sum;
}

int64_t bytes_touched(const Schedule& schedule, const Step& step) {
  int64_t bytes = 0;
  for (const Copy& copy : step.copies) {
    const int64_t source = row_bytes(at(schedule, copy.src), copy.heads);
    const int64_t target = row_bytes(at(schedule, copy.dst), copy.heads);
    bytes += copy.rows * (source + target);
    if (step.kind == StepKind::kAccumulate) bytes += copy.rows * target;
    if (step.kind == StepKind::kDelta) {
      bytes += copy.rows * row_bytes(at(schedule, step.dout), copy.heads);
    }
  }
  for (const Fill& fill : step.fills) {
    const Buffer& buffer = at(schedule, fill.buffer);
    bytes += fill.rows * row_bytes(buffer, buffer.heads);
  }
  return bytes;
}

int64_t bytes_carried(const Step& step) {
  int64_t bytes = 0;
  for (const Message& message : step.messages) bytes += message.bytes;
  return bytes;
}

int64_t bytes_pulled(const Schedule& schedule, const Step& step) {
  int64_t bytes = 0;
  for (const Copy& copy : step.copies) {
    const Buffer& source = at(schedule, copy.src);
    if (source.space == Space::kPeer) bytes += copy.rows * row_bytes(source, copy.heads);
  }
  return bytes;
}

int64_t saved_bytes(const Schedule& schedule) {
  int64_t bytes = 0;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == Space::kSaved) bytes += buffer.bytes();
  }
  return bytes;
}

double message_seconds(const Message& message, int rank, const Topology& topology,
                       const Rates& rates) {
  const bool near = topology.node_of_rank[static_cast<size_t>(rank)] ==
                    topology.node_of_rank[static_cast<size_t>(message.peer)];
  const auto bytes = static_cast<double>(message.bytes);
  return near ? rates.node_latency + bytes / rates.node_bytes
              : rates.network_latency + bytes / rates.network_bytes;
}

double pull_seconds(const Schedule& schedule, const Step& step, const Rates& rates) {
  return rates.node_latency + static_cast<double>(bytes_pulled(schedule, step)) / rates.node_bytes;
}

double step_seconds(const Schedule& schedule, const Step& step, const Rates& rates) {
  return rates.launch_seconds +
         static_cast<double>(bytes_touched(schedule, step)) / rates.memory_bytes;
}

double part_seconds(const Schedule& schedule, const Part& part, const Rates& rates) {
  const bool forward = schedule.direction == Direction::kForward;
  return flops(schedule, part) / (forward ? rates.forward_flops : rates.backward_flops) +
         static_cast<double>(bytes_added(schedule, part)) / rates.memory_bytes;
}

Cost cost_without_time(const Schedule& schedule) {
  Cost cost;
  cost.bytes_sent = schedule.bytes_sent();
  cost.peak_bytes =
      schedule.workspace_bytes + schedule.queues() * schedule.scratch_bytes + saved_bytes(schedule);
  cost.flops = schedule.flops();
  cost.spans.resize(schedule.steps.size());
  for (size_t i = 0; i < cost.spans.size(); ++i) cost.spans[i].step = static_cast<StepId>(i);
  return cost;
}

}  // namespace longspan
