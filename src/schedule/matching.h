// Which send meets which recv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longspan/schedule.h"

namespace longspan {

inline constexpr size_t kNobody = SIZE_MAX;

struct MessageSide {
  int sender = 0;
  int receiver = 0;
  uint32_t tag = 0;
  bool receives = false;
  StepId step = 0;
  const Message* message = nullptr;
  size_t partner = kNobody;  // index of the other side

  int rank() const { return receives ? receiver : sender; }
};

/// All messages of all ranks, in posting order: rank by rank, step by step. The two sides of one
/// (sender, receiver, tag) meet in that order. The schedules outlive this object.
class MessageSides {
 public:
  explicit MessageSides(std::span<const Schedule> schedules);

  size_t size() const { return sides_.size(); }
  const MessageSide& operator[](size_t index) const { return sides_[index]; }
  /// Index of the first message of a step; its others follow.
  size_t first(size_t rank, size_t step) const { return first_side_[first_step_[rank] + step]; }

 private:
  void match();
  bool less(size_t a, size_t b) const;
  bool alike(size_t a, size_t b, bool receives) const;

  std::vector<MessageSide> sides_;
  std::vector<size_t> first_step_;
  std::vector<size_t> first_side_;
};

}  // namespace longspan
