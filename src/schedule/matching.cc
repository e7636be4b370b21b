#include "schedule/matching.h"

#include <algorithm>
#include <tuple>

namespace longspan {

MessageSides::MessageSides(std::span<const Schedule> schedules) {
  for (const Schedule& schedule : schedules) {
    first_step_.push_back(first_side_.size());
    StepId id = 0;
    for (const Step& step : schedule.steps) {
      first_side_.push_back(sides_.size());
      for (const Message& message : step.messages) {
        const bool receives = message.kind == TransferKind::kRecv;
        sides_.push_back({.sender = receives ? message.peer : schedule.rank,
                          .receiver = receives ? schedule.rank : message.peer,
                          .tag = message.tag,
                          .receives = receives,
                          .step = id,
                          .message = &message});
      }
      ++id;
    }
  }
  match();
}

bool MessageSides::less(size_t a, size_t b) const {
  const auto key = [this](size_t i) {
    const MessageSide& side = sides_[i];
    return std::tuple(side.sender, side.receiver, side.tag, side.receives, i);
  };
  return key(a) < key(b);
}

bool MessageSides::alike(size_t a, size_t b, bool receives) const {
  const MessageSide& x = sides_[a];
  const MessageSide& y = sides_[b];
  return x.sender == y.sender && x.receiver == y.receiver && x.tag == y.tag &&
         y.receives == receives;
}

void MessageSides::match() {
  std::vector<size_t> order(sides_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return less(a, b); });
  size_t begin = 0;
  while (begin < order.size()) {
    size_t middle = begin;
    while (middle < order.size() && alike(order[begin], order[middle], false)) ++middle;
    size_t end = middle;
    while (end < order.size() && alike(order[begin], order[end], true)) ++end;
    for (size_t i = 0; begin + i < middle && middle + i < end; ++i) {
      sides_[order[begin + i]].partner = order[middle + i];
      sides_[order[middle + i]].partner = order[begin + i];
    }
    begin = end;
  }
}

}  // namespace longspan
