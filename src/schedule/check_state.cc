#include "schedule/check_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace longspan::proof {
namespace {

// Beyond this many lanes strips are followed row by row instead.
constexpr int64_t kMostLanes = 4096;

int64_t rows_in_lane(int64_t rows, int64_t lane, int64_t modulus) {
  return rows <= lane ? 0 : (rows - lane + modulus - 1) / modulus;
}

}  // namespace

RowStates::RowStates(const Schedule& schedule, const Order& order, BufferId id)
    : schedule_(schedule), order_(order), id_(id), buffer_(buffer_of(schedule, id)) {
  sums_ = is_accumulated(schedule.direction, buffer_.quantity);
  output_ = is_output(schedule.direction, buffer_);
  const bool kept = buffer_.space == Space::kSaved && schedule.direction == Direction::kBackward;
  input_ = (buffer_.space == Space::kOperand && !output_) || kept || buffer_.space == Space::kPeer;
  heads_ = {0};
  if (buffer_.heads > 0) heads_.push_back(buffer_.heads);
}

void RowStates::expect_heads(int64_t begin, int64_t end) {
  for (const int64_t bound : {begin, end}) {
    const auto at = std::lower_bound(heads_.begin(), heads_.end(), bound);
    if (at == heads_.end() || *at != bound) heads_.insert(at, bound);
  }
}

void RowStates::expect_step(int64_t step) {
  if (modulus_ % step == 0) return;
  const int64_t common = std::lcm(modulus_, step);
  modulus_ = common <= kMostLanes ? common : 1;
}

void RowStates::expect_like(const RowStates& other) {
  for (const int64_t bound : other.heads_) expect_heads(bound, bound);
  expect_step(other.modulus_);
}

void RowStates::open() {
  if (input_) return;
  lanes_.resize((heads_.size() - 1) * static_cast<size_t>(modulus_));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const auto residue = static_cast<int64_t>(i) % modulus_;
    const int64_t rows = rows_in_lane(buffer_.rows, residue, modulus_);
    if (rows > 0) lanes_[i].push_back({.begin = 0, .end = rows});
  }
}

Error RowStates::fail(const Touch& touch, const Segment& segment, std::string_view what) const {
  return defect(schedule_, touch.step, id_, fmt::format("near row {}: {}", row_of(segment), what));
}

/// As intervals of lanes, in no order.
std::vector<RowStates::Stretch> RowStates::spread(std::span<const Strip> strips) const {
  std::vector<Stretch> result;
  result.reserve(strips.size());
  for (const Strip& strip : strips) {
    if (strip.step == 1 || strip.rows == 1) {
      for (int64_t lane = 0; lane < modulus_; ++lane) {
        const int64_t begin = rows_in_lane(strip.row, lane, modulus_);
        const int64_t end = rows_in_lane(strip.row + strip.rows, lane, modulus_);
        if (begin < end) result.push_back({lane, begin, end});
      }
      continue;
    }
    // Every `lanes`-th row of the strip lies in the same lane; without lanes each row is alone.
    const bool laned = modulus_ % strip.step == 0;
    const int64_t lanes = laned ? std::min(modulus_ / strip.step, strip.rows) : strip.rows;
    for (int64_t i = 0; i < lanes; ++i) {
      const int64_t row = strip.row + i * strip.step;
      const int64_t rows = (strip.rows - i + lanes - 1) / lanes;
      result.push_back({row % modulus_, row / modulus_, row / modulus_ + rows});
    }
  }
  return result;
}

/// Sorted and joined. A step may not write a row twice, nor take a partial result twice.
Result<std::vector<RowStates::Stretch>> RowStates::stretches(const Touch& touch) const {
  std::vector<Stretch> all = spread(touch.strips);
  const auto less = [](const Stretch& a, const Stretch& b) {
    return a.lane != b.lane ? a.lane < b.lane : a.begin < b.begin;
  };
  if (!std::is_sorted(all.begin(), all.end(), less)) std::sort(all.begin(), all.end(), less);
  const bool takes = touch.access == Access::kRead && sums_ && is_gradient(buffer_.quantity);
  const bool once = takes || touch.access == Access::kWrite || touch.access == Access::kFill;
  std::vector<Stretch> joined;
  joined.reserve(all.size());
  for (const Stretch& next : all) {
    if (joined.empty() || joined.back().lane != next.lane || joined.back().end < next.begin) {
      joined.push_back(next);
      continue;
    }
    if (once && next.begin < joined.back().end) {
      return defect(schedule_, touch.step, id_,
                    fmt::format("near row {}: one step {} it twice", next.begin * modulus_,
                                takes ? "takes" : "writes"));
    }
    joined.back().end = std::max(joined.back().end, next.end);
  }
  return joined;
}

Status RowStates::touch(const Touch& touch) {
  if (input_) {
    if (touch.access == Access::kRead) return {};
    return defect(schedule_, touch.step, id_, "writes an input");
  }
  LONGSPAN_TRY(const std::vector<Stretch> all, stretches(touch));
  for (size_t range = 0; range + 1 < heads_.size(); ++range) {
    if (heads_[range] < touch.head || heads_[range + 1] > touch.head + touch.heads) continue;
    for (size_t begin = 0; begin < all.size();) {
      size_t end = begin + 1;
      while (end < all.size() && all[end].lane == all[begin].lane) ++end;
      const size_t lane =
          range * static_cast<size_t>(modulus_) + static_cast<size_t>(all[begin].lane);
      LONGSPAN_CHECK_OK(apply(lanes_[lane], std::span(all).subspan(begin, end - begin), touch));
      begin = end;
    }
  }
  return {};
}

/// Rewrites the segments from the first stretch to the last in one pass.
Status RowStates::apply(Lane& lane, std::span<const Stretch> stretches, const Touch& touch) {
  rewritten_.clear();
  const auto first =
      std::upper_bound(lane.begin(), lane.end(), stretches.front().begin,
                       [](int64_t row, const Segment& segment) { return row < segment.end; });
  auto next = first;
  size_t at = 0;
  for (; next != lane.end() && at < stretches.size(); ++next) {
    Segment rest = *next;
    while (at < stretches.size() && stretches[at].begin < next->end) {
      const Stretch& stretch = stretches[at];
      Segment untouched = rest;
      untouched.end = std::max(stretch.begin, rest.begin);
      append(untouched);
      Segment touched = rest;
      touched.begin = untouched.end;
      touched.end = std::min(stretch.end, next->end);
      LONGSPAN_CHECK_OK(order(touched, touch));
      LONGSPAN_CHECK_OK(change(touched, touch));
      append(touched);
      rest.begin = touched.end;
      if (stretch.end > next->end) break;  // goes on in the next segment
      ++at;
    }
    append(rest);
  }
  const auto place = lane.erase(first, next);
  lane.insert(place, rewritten_.begin(), rewritten_.end());
  return {};
}

/// Equal neighbours become one segment.
void RowStates::append(const Segment& segment) {
  if (segment.begin == segment.end) return;
  if (!rewritten_.empty()) {
    Segment& last = rewritten_.back();
    const bool same = last.writer == segment.writer && last.reader == segment.reader &&
                      last.senders == segment.senders && last.held == segment.held;
    if (same) {
      last.end = segment.end;
      return;
    }
  }
  rewritten_.push_back(segment);
}

/// Every earlier use that this one conflicts with must be done.
Status RowStates::order(const Segment& segment, const Touch& touch) const {
  const auto wait = [&](StepId other, std::string_view use) {
    return fail(touch, segment, fmt::format("does not wait for step {}, which {} it", other, use));
  };
  const bool again = segment.writer == touch.step && touch.access == Access::kUpdate;
  if (segment.writer != kNone && !again &&
      !order_.before(segment.writer, touch.step, touch.parts)) {
    return wait(segment.writer, "writes");
  }
  if (touch.access == Access::kRead) return {};
  if (segment.reader != kNone && !order_.before(segment.reader, touch.step, touch.parts)) {
    return wait(segment.reader, "reads");
  }
  for (int32_t i = segment.senders; i != kNone; i = readers_[static_cast<size_t>(i)].next) {
    const StepId sender = readers_[static_cast<size_t>(i)].step;
    if (!order_.before(sender, touch.step, touch.parts)) return wait(sender, "sends");
  }
  return {};
}

Status RowStates::change(Segment& segment, const Touch& touch) {
  const Held held = segment.held;
  if (touch.access == Access::kRead) {
    if (output_) return fail(touch, segment, "reads an output");
    if (held == Held::kNothing) return fail(touch, segment, "reads it before it was written");
    if (held == Held::kTaken && is_gradient(buffer_.quantity)) {
      return fail(touch, segment, "takes a partial result a second time");
    }
    if (sums_) segment.held = Held::kTaken;
    if (!is_transfer(schedule_, touch.step)) {
      segment.reader = touch.step;
      return {};
    }
    const auto link = static_cast<size_t>(segment.senders);
    if (segment.senders != kNone && readers_[link].step == touch.step) return {};
    const bool fresh = !readers_.empty() && readers_.back().step == touch.step &&
                       readers_.back().next == segment.senders;
    if (!fresh) readers_.push_back({touch.step, segment.senders});
    segment.senders = static_cast<int32_t>(readers_.size()) - 1;
    return {};
  }
  if (touch.access == Access::kUpdate) {
    if (!sums_ || output_) return fail(touch, segment, "adds to what is no accumulator");
    if (held == Held::kNothing) return fail(touch, segment, "adds to it before it was filled");
    if (held == Held::kTaken) return fail(touch, segment, "adds to a result already taken");
    segment.held = Held::kPartial;
  } else {
    if (output_ && held != Held::kNothing) return fail(touch, segment, "writes an output twice");
    if (held == Held::kPartial) return fail(touch, segment, "overwrites a partial result");
    const Held written = touch.access == Access::kFill ? Held::kZero : Held::kPartial;
    segment.held = sums_ && !output_ ? written : Held::kValue;
  }
  segment.writer = touch.step;
  segment.reader = kNone;
  segment.senders = kNone;
  return {};
}

bool RowStates::agrees(const RowStates& other, const Touch& touch) {
  if (lanes_.size() != other.lanes_.size()) return false;
  for (const Stretch& stretch : spread(touch.strips)) {
    for (size_t i = static_cast<size_t>(stretch.lane); i < lanes_.size();
         i += static_cast<size_t>(modulus_)) {
      const auto reach = [](int64_t row, const Segment& s) { return row < s.end; };
      const Lane& a = lanes_[i];
      const Lane& b = other.lanes_[i];
      auto left = std::upper_bound(a.begin(), a.end(), stretch.begin, reach);
      auto right = std::upper_bound(b.begin(), b.end(), stretch.begin, reach);
      while (left != a.end() && right != b.end() &&
             std::max(left->begin, right->begin) < stretch.end) {
        if (left->held != right->held) return false;
        const int64_t end = std::min(left->end, right->end);
        if (left->end == end) ++left;
        if (right->end == end) ++right;
      }
    }
  }
  return true;
}

/// Whether the segment leaves out a row that has to be written: of an output all, padding included.
bool RowStates::leaves_out(const Segment& segment, int64_t residue) const {
  if (segment.held != Held::kNothing) return false;
  if (output_) return true;
  if (buffer_.space != Space::kSaved) return false;
  if (modulus_ == 1) return holds_tokens(buffer_, segment.begin, segment.end);
  for (int64_t i = segment.begin; i < segment.end; ++i) {
    const int64_t row = i * modulus_ + residue;
    if (holds_tokens(buffer_, row, row + 1)) return true;
  }
  return false;
}

Status RowStates::finish() const {
  if (input_) return {};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (const Segment& segment : lanes_[i]) {
      if (leaves_out(segment, static_cast<int64_t>(i) % modulus_)) {
        return defect(schedule_, kNone, id_,
                      fmt::format("near row {}: never written", row_of(segment)));
      }
      if (buffer_.space != Space::kSaved && segment.held == Held::kPartial) {
        return defect(schedule_, segment.writer, id_,
                      fmt::format("near row {}: a partial result reaches nobody", row_of(segment)));
      }
    }
  }
  return {};
}

}  // namespace longspan::proof
