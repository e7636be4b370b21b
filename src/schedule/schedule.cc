#include "longspan/schedule.h"

#include "schedule/work.h"

namespace longspan {

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::kAttend: return "attend";
    case StepKind::kAttendBackward: return "attend_backward";
    case StepKind::kDelta: return "delta";
    case StepKind::kSendRecv: return "send_recv";
    case StepKind::kAllGather: return "all_gather";
    case StepKind::kReduceScatter: return "reduce_scatter";
    case StepKind::kAllToAll: return "all_to_all";
    case StepKind::kPack: return "pack";
    case StepKind::kUnpack: return "unpack";
    case StepKind::kAccumulate: return "accumulate";
    case StepKind::kMaximum: return "maximum";
    case StepKind::kSink: return "sink";
    case StepKind::kSinkGradient: return "sink_gradient";
    case StepKind::kFill: return "fill";
    case StepKind::kLend: return "lend";
    case StepKind::kPull: return "pull";
  }
  return "";
}

std::string_view name(Lane lane) { return lane == Lane::kCompute ? "compute" : "transfer"; }

std::string_view name(Space space) {
  switch (space) {
    case Space::kOperand: return "operand";
    case Space::kSaved: return "saved";
    case Space::kWorkspace: return "workspace";
    case Space::kPeer: return "peer";
  }
  return "";
}

std::string_view name(Quantity quantity) {
  switch (quantity) {
    case Quantity::kQ: return "q";
    case Quantity::kK: return "k";
    case Quantity::kV: return "v";
    case Quantity::kO: return "o";
    case Quantity::kLse: return "lse";
    case Quantity::kMaxLogit: return "max_logit";
    case Quantity::kDout: return "dout";
    case Quantity::kDelta: return "delta";
    case Quantity::kDq: return "dq";
    case Quantity::kDk: return "dk";
    case Quantity::kDv: return "dv";
  }
  return "";
}

int64_t Schedule::bytes_sent() const {
  int64_t bytes = 0;
  for (const Step& step : steps) {
    for (const Message& message : step.messages) {
      if (message.kind == TransferKind::kSend) bytes += message.bytes;
    }
    bytes += bytes_pulled(*this, step);
  }
  return bytes;
}

double Schedule::flops() const {
  double sum = 0;
  for (const Step& step : steps) sum += longspan::flops(*this, step);
  return sum;
}

int Schedule::queues() const {
  int most = 0;
  for (const Step& step : steps) most = std::max(most, step.queue);
  return most + 1;
}

int64_t Schedule::tile_count() const {
  int64_t count = 0;
  for (const Step& step : steps) {
    for (const Part& part : step.parts) count += static_cast<int64_t>(part.tiles.size());
  }
  return count;
}

}  // namespace longspan
