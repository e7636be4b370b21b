// What the rows of one buffer hold, and which steps used them last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/check.h"

namespace longspan::proof {

enum class Access { kRead, kWrite, kFill, kUpdate };

/// Rows row, row + step, ... .
struct Strip {
  int64_t row = 0;
  int64_t step = 1;
  int64_t rows = 0;
};

/// One step's use of one buffer. `parts`: see Order::before.
struct Touch {
  BufferId buffer = kNone;
  StepId step = 0;
  size_t parts = 0;
  Access access = Access::kRead;
  int64_t head = 0;
  int64_t heads = 0;
  std::vector<Strip> strips;
};

enum class Held : uint8_t {
  kNothing,
  kValue,
  kZero,     // an accumulator without contributions
  kPartial,  // contributions that still have to reach their owner
  kTaken,    // contributions that were moved on
};

/// Rows are kept as intervals, apart for every range of heads that copies tell apart. Where copies
/// have a row step s, row r is row r / s of one of s lanes, so that strips are intervals as well.
class RowStates {
 public:
  RowStates(const Schedule& schedule, const Order& order, BufferId id);

  /// Never written, so that reads need no order.
  bool input() const { return input_; }
  /// Before the first touch: the heads and row steps that touches will have.
  void expect_heads(int64_t begin, int64_t end);
  void expect_step(int64_t step);
  void expect_like(const RowStates& other);
  void open();

  /// Fails on a race, a read of nothing, a partial result lost or taken twice.
  Status touch(const Touch& touch);
  /// Whether both hold the same where `touch` goes. Both expect the same heads and steps.
  bool agrees(const RowStates& other, const Touch& touch);
  /// Fails when something is missing or left over at the end.
  Status finish() const;

 private:
  struct Segment {
    int64_t begin = 0;
    int64_t end = 0;
    StepId writer = kNone;
    StepId reader = kNone;    // the last compute step that read
    int32_t senders = kNone;  // list of transfer steps that read
    Held held = Held::kNothing;
  };
  using Lane = std::vector<Segment>;
  struct Reader {
    StepId step = kNone;
    int32_t next = kNone;
  };
  struct Stretch {  // of a lane
    int64_t lane = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  Result<std::vector<Stretch>> stretches(const Touch& touch) const;
  std::vector<Stretch> spread(std::span<const Strip> strips) const;
  Status apply(Lane& lane, std::span<const Stretch> stretches, const Touch& touch);
  void append(const Segment& segment);
  Status order(const Segment& segment, const Touch& touch) const;
  Status change(Segment& segment, const Touch& touch);
  bool leaves_out(const Segment& segment, int64_t residue) const;
  Error fail(const Touch& touch, const Segment& segment, std::string_view what) const;
  int64_t row_of(const Segment& segment) const { return segment.begin * modulus_; }

  const Schedule& schedule_;
  const Order& order_;
  BufferId id_;
  const Buffer& buffer_;
  bool input_ = false;  // never written: nothing to follow
  bool output_ = false;
  bool sums_ = false;
  int64_t modulus_ = 1;
  std::vector<int64_t> heads_;  // bounds of the head ranges
  std::vector<Lane> lanes_;     // per head range, modulus_ each
  std::vector<Reader> readers_;
  Lane rewritten_;  // scratch
};

}  // namespace longspan::proof
