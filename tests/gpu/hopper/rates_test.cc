// What merging and pulling add to the kernels, and what packs and bands cost by their areas: times
// of two calls in turns.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/words.h"
#include "gpu/hopper/timed_call.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/hopper.h"
#include "providers/hopper/work.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr Sizes k64{{64, 64}, 32, 8}, k96{{96, 96}, 32, 8}, k128{{128, 128}, 32, 8},
    k192{{192, 192}, 16, 8}, k192By128{{192, 128}, 16, 16}, k256{{256, 256}, 16, 8},
    k512{{512, 512}, 16, 8};

std::string text(const Sizes& s) { return fmt::format("{}/{} columns", s.dims.qk, s.dims.v); }

/// What a ratio should be at most, and beyond what a test fails: more where the goal is missed.
struct Bound {
  double goal, most;
};
std::string text(const Bound& b) {
  const std::string most = fmt::format("at most {:.2f}", b.most);
  return b.most == b.goal ? most : fmt::format("{}; the goal is {:.2f}", most, b.goal);
}

TEST(HopperRates, MergedResultsTakeTheTimeOfWholeOnes) {
  const std::pair<Sizes, Bound> cases[] = {{k128, {1.04, 1.05}}, {k256, {1.04, 1.04}}};
  for (const auto& [sizes, bound] : cases) {
    const auto stream = must(cuda::OwnedStream::make());
    const auto tiles = pack({{8192, 8192, kFull}});
    const TimedCall merged(sizes, Direction::kForward, tiles, stream.get(), false);
    const TimedCall whole(sizes, Direction::kForward, tiles, stream.get());
    const Paired p = settled([&] { merged(); }, [&] { whole(); }, stream.get());
    fmt::print("{}: merged {:.1f} us, whole {:.1f} us, ratio {:.4f} ({})\n", text(sizes),
               p.median_us, p.direct_us, p.ratio, text(bound));
    EXPECT_LE(p.ratio, bound.most) << text(sizes);
  }
}

/// A call's keys as those of a launch that pulls: the first `lent` rows are borrowed from memory of
/// the same device and ready before the launch, the others its own.
class PullingCall {
 public:
  PullingCall(const TimedCall& plain, int64_t lent)
      : call_(plain.forward_tiles()),
        plan_(must(kHopper.prepare(plain.problem(), lane_device(1)))),
        words_(must(cuda::Memory::make((2 * kLoans + kLoanCounters) * sizeof(uint32_t)))) {
    must(cuda::fill(words_.data(), 0, words_.size()));
    const int64_t rows = call_.k.seq;
    std::vector<Pull> pulls{{.lender = kOwnRows, .dst_row = lent, .rows = rows - lent}};
    if (lent > 0) pulls.push_back({.lender = 0, .rows = lent});
    staged_ = must(plan_->stage_pulled(call_.tiles, pulls));
    workspace_ = must(cuda::Memory::make(plan_->workspace_bytes()));
    if (lent > 0) borrow();
    keys_ = {.k = from(call_.k, lent),
             .v = from(call_.v, lent),
             .loans = {.borrowed = loans_, .counters = word(2 * kLoans)}};
    for (TensorView* view : {&call_.k, &call_.v}) {
      gathered_.push_back(must(cuda::Memory::make(static_cast<size_t>(view->extent_bytes()))));
      view->data = gathered_.back().data();
    }
    call_.staged = staged_.get();
    call_.pulled = &keys_;
  }
  PullingCall(const PullingCall&) = delete;
  PullingCall& operator=(const PullingCall&) = delete;

  void operator()() const {
    cuda::WordOperations ready;
    for (const Loan& loan : loans_) ready.write(loan.ready, 1);
    if (!loans_.empty()) must(ready.enqueue(call_.stream));
    must(plan_->forward(call_, {workspace_.data(), workspace_.size()}));
  }

 private:
  static constexpr size_t kLoans = 2;

  uint32_t* word(size_t index) const { return static_cast<uint32_t*>(words_.data()) + index; }
  static TensorView from(TensorView view, int64_t row) {
    view.data = static_cast<std::byte*>(view.data) + row * view.stride_seq * size_of(view.dtype);
    view.seq -= row;
    return view;
  }
  void borrow() {
    for (const TensorView* view : {&call_.k, &call_.v}) {
      const size_t i = loans_.size();
      loans_.push_back({.data = view->data, .ready = word(i), .done = word(kLoans + i)});
    }
  }

  ForwardTiles call_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Staged> staged_;
  cuda::Memory words_, workspace_;
  std::vector<cuda::Memory> gathered_;
  std::vector<Loan> loans_;
  PulledKeys keys_;
};

/// One sequence. The bound holds where all keys are own, and where one piece is lent, so that each
/// producer looks at its flag; bytes of half of the keys take time of their own.
void expect_free_pulls(const Sizes& sizes, const Band& band, const Bound& bound) {
  constexpr int64_t kTokens = 8192, kPiece = 256;
  const auto stream = must(cuda::OwnedStream::make());
  const TimedCall plain(sizes, Direction::kForward, pack({{kTokens, kTokens, band}}), stream.get());
  for (const int64_t lent : {int64_t{0}, kPiece, kTokens / 2}) {
    const PullingCall pulling(plain, lent);
    const Paired p = settled([&] { pulling(); }, [&] { plain(); }, stream.get());
    const bool judged = lent <= kPiece;
    fmt::print(
        "{}, {}, {} of {} keys lent: pulling {:.1f} us, plain {:.1f} us, ratio {:.4f} ({})\n",
        text(sizes), band == kFull ? "full" : "causal", lent, kTokens, p.median_us, p.direct_us,
        p.ratio, judged ? text(bound) : "not judged");
    if (judged) {
      EXPECT_LE(p.ratio, bound.most) << text(sizes) << ", lent " << lent;
    }
  }
}

TEST(HopperRates, PullingCostsNothingWhereKeysAreThere) {
  const std::pair<Sizes, Bound> cases[] = {
      {k96, {1.01, 1.03}}, {k128, {1.01, 1.02}}, {k192, {1.01, 1.01}}, {k256, {1.01, 1.01}}};
  for (const auto& [sizes, bound] : cases) {
    for (const Band& band : {kFull, kCausal}) expect_free_pulls(sizes, band, bound);
  }
}

/// Causal sequences of the lengths between random cuts of all tokens.
std::vector<PlacedTile> random_pack(int64_t tokens, int sequences) {
  std::mt19937_64 random(7);
  std::vector<int64_t> cuts{0, tokens};
  while (std::ssize(cuts) <= sequences) cuts.push_back(pick(random, 1, tokens - 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Sequence> pack_of;
  for (size_t i = 1; i < cuts.size(); ++i) {
    const int64_t length = cuts[i] - cuts[i - 1];
    pack_of.push_back({length, length, kCausal});
  }
  return pack(pack_of);
}

/// Causal sequences of one length, with as many tokens and pairs as `uneven` but for rounding.
std::vector<PlacedTile> even_pack(const std::vector<PlacedTile>& uneven, int64_t tokens) {
  const auto pairs = static_cast<double>(pairs_of(uneven));
  const double ideal = 2 * pairs / static_cast<double>(tokens) - 1;
  const auto count = std::round(static_cast<double>(tokens) / ideal);
  const auto length = std::llround((std::sqrt(1 + 8 * pairs / count) - 1) / 2);
  return pack(std::vector<Sequence>(static_cast<size_t>(count), {length, length, kCausal}));
}

void expect_packs_as_fast(const Sizes& sizes, Direction direction, double least) {
  constexpr int64_t kTokens = 65536;
  const auto uneven = random_pack(kTokens, 64), even = even_pack(uneven, kTokens);
  const double areas = static_cast<double>(pairs_of(uneven)) / static_cast<double>(pairs_of(even));
  ASSERT_NEAR(areas, 1, 0.01);
  const auto stream = must(cuda::OwnedStream::make());
  const TimedCall packed(sizes, direction, uneven, stream.get());
  const TimedCall dense(sizes, direction, even, stream.get());
  const Paired p = settled([&] { packed(); }, [&] { dense(); }, stream.get());
  const double rate = areas / p.ratio;
  const char* const name = direction == Direction::kForward ? "forward" : "backward";
  fmt::print(
      "{}, {}: packed {:.1f} us ({:.0f} TFLOP/s), {} x {} tokens {:.1f} us ({:.0f}), rate {:.4f} "
      "(at least {:.2f})\n",
      text(sizes), name, p.median_us, packed.tflops(p.median_us), even.size(),
      even.front().tile.q.size(), p.direct_us, dense.tflops(p.direct_us), rate, least);
  EXPECT_GE(rate, least) << text(sizes) << ", " << name;
}

TEST(HopperRates, PacksAreAsFastAsSequencesOfOneLength) {
  for (const Sizes& sizes : {k64, k96, k128, k192, k192By128, k256, k512}) {
    expect_packs_as_fast(sizes, Direction::kForward, 0.90);
  }
  for (const Sizes& sizes : {k192, k192By128, k256, k512}) {
    expect_packs_as_fast(sizes, Direction::kBackward, 0.88);
  }
}

/// Units of scores that the kernels compute: the area in multiples of them.
int64_t units_of(const std::vector<PlacedTile>& tiles) {
  using hopper::kUnitKeys, hopper::kUnitQueries;
  int64_t units = 0;
  for (const hopper::Block& block : hopper::make_work(tiles, true, kUnitQueries, kUnitKeys).blocks)
    units += hopper::key_blocks(block, kUnitQueries, kUnitKeys);
  return units;
}

TEST(HopperRates, BandsOfBackwardCostWhatTheirUnitsCost) {
  const auto stream = must(cuda::OwnedStream::make());
  const auto square = pack({{8192, 8192, kFull}});
  const TimedCall full(k256, Direction::kBackward, square, stream.get());
  struct Banded {
    const char* name;
    Sequence sequence;
    Bound bound = {1.15, 1.15};
  };
  for (const Banded& b : {Banded{"bottom right", {8192, 16384, {-kUnbounded, 8192}}},
                          Banded{"window 1024,0", {32768, 32768, {-1024, 0}}, {1.15, 1.15}},
                          Banded{"window 1024,1024", {32768, 32768, {-1024, 1024}}},
                          Banded{"window 4096,0", {16384, 16384, {-4096, 0}}}}) {
    const auto tiles = pack({b.sequence});
    const TimedCall banded(k256, Direction::kBackward, tiles, stream.get());
    const Paired p = settled([&] { banded(); }, [&] { full(); }, stream.get());
    const double cost =
        p.ratio * static_cast<double>(units_of(square)) / static_cast<double>(units_of(tiles));
    fmt::print(
        "backward, {}, {}: {} units in {:.1f} us ({:.0f} TFLOP/s), full {} in {:.1f} us ({:.0f}), "
        "cost of a unit {:.4f} ({})\n",
        text(k256), b.name, units_of(tiles), p.median_us, banded.tflops(p.median_us),
        units_of(square), p.direct_us, full.tflops(p.direct_us), cost, text(b.bound));
    EXPECT_LE(cost, b.bound.most) << b.name;
  }
}

}  // namespace
}  // namespace longspan::testing
