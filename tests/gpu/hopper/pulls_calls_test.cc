// Calls that pull keys and values, against memory of the test's own: pieces that come late and in
// any order change no bit, own keys stay where they are, and lenders are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/words.h"
#include "gpu/device_tensors.h"
#include "gpu/hopper/against_reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// Rows [0, kFirst) are of lender 0, [kFirst, kSecond) own, the others of lender 1.
constexpr int64_t kFirst = 300, kSecond = 900, kRows = 1500;

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }

/// Own tiles whose blocks begin inside and outside own rows, causal and windowed.
Case pulling_case(int64_t dim, DType dtype) {
  Case c = make_case(1100, kRows, dim, dim, dtype);
  c.problem.features.whole = true;
  c.tiles = {make_placed(0, 600, 0, kSecond, {-kUnbounded, kFirst}),
             make_placed(600, 300, kFirst, 1200, {}), make_placed(900, 200, 100, 900, {-50, 700})};
  return c;
}

class PulledCall {
 public:
  PulledCall(const Case& c, const Inputs& in)
      : scope_(0),
        results_{empty_carry(c, c.problem.dtype).o, empty_carry(c, DType::kF32).lse},
        call_{.q = in.q.view(),
              .k = in.k.view(),
              .v = in.v.view(),
              .o = results_.o.view(),
              .lse = results_.lse.view(),
              .tiles = c.tiles,
              .scale = c.scale,
              .stream = stream_.get()},
        plan_(must(kHopper.prepare(c.problem, lane_device(1)))),
        staged_(must(plan_->stage_pulled(c.tiles, pulls()))),
        workspace_(must(GuardedMemory::poisoned(plan_->workspace_bytes()))),
        words_(must(cuda::Memory::make((kWords + kLoanCounters) * sizeof(uint32_t)))) {
    expect_ok(cuda::fill(words_.data(), 0, words_.size()));
    expect_ok(tensors_.move(call_));
    lend();
    gather();
    call_.staged = staged_.get();
    call_.pulled = &keys_;
  }

  static std::vector<Pull> pulls() {
    return {{.lender = 0, .rows = kFirst},
            {.lender = kOwnRows, .dst_row = kFirst, .rows = kSecond - kFirst},
            {.lender = 1, .dst_row = kSecond, .rows = kRows - kSecond}};
  }

  /// Bits of O and LSE. The loans become ready in this order, `pause` apart, once all is queued.
  std::vector<double> run(const std::vector<size_t>& order, std::chrono::milliseconds pause) {
    results_.o.fill(NAN);
    results_.lse.fill(NAN);
    expect_ok(tensors_.upload());
    poison_gathered();
    expect_ok(cuda::fill(words_.data(), 0, kWords * sizeof(uint32_t)));
    expect_ok(plan_->forward(call_, {workspace_.data(), plan_->workspace_bytes()}));
    for (const size_t loan : order) {
      std::this_thread::sleep_for(pause);
      set(loans_[loan].ready);
    }
    for (const Lent& lent : lent_) {
      std::this_thread::sleep_for(pause);
      set(lent.done);
    }
    expect_ok(cuda::synchronize(stream_.get()));
    expect_words();
    expect_ok(tensors_.copy_back());
    std::vector<double> values = results_.o.values();
    const std::vector<double> lse = results_.lse.values();
    values.insert(values.end(), lse.begin(), lse.end());
    return values;
  }

  void take_counters() { keys_.loans.counters = nullptr; }
  const Carry& results() const { return results_; }
  Status forward(const PulledKeys* keys) {
    ForwardTiles call = call_;
    call.pulled = keys;
    return plan_->forward(call, {workspace_.data(), plan_->workspace_bytes()});
  }
  const PulledKeys& keys() const { return keys_; }

 private:
  static constexpr size_t kLoans = 4, kLent = 2, kWords = 2 * kLoans + 2 * kLent;

  uint32_t* word(size_t index) const { return static_cast<uint32_t*>(words_.data()) + index; }

  static TensorView rows_of(TensorView view, int64_t first, int64_t last) {
    EXPECT_EQ(view.stride_seq, view.heads * view.dim);
    view.data = static_cast<std::byte*>(view.data) + first * view.stride_seq * size_of(view.dtype);
    view.seq = last - first;
    return view;
  }

  void lend() {
    for (const int64_t first : {int64_t{0}, kSecond}) {
      for (const TensorView& view : {call_.k, call_.v}) {
        const size_t i = loans_.size();
        loans_.push_back(
            {.data = rows_of(view, first, kRows).data, .ready = word(i), .done = word(kLoans + i)});
      }
    }
    for (size_t i = 0; i < kLent; ++i) {
      lent_.push_back({.ready = word(2 * kLoans + i), .done = word(2 * kLoans + kLent + i)});
    }
    keys_ = {.k = rows_of(call_.k, kFirst, kSecond),
             .v = rows_of(call_.v, kFirst, kSecond),
             .loans = {.borrowed = loans_, .lent = lent_, .counters = word(kWords)}};
  }

  void set(uint32_t* word) {
    cuda::WordOperations operations;
    operations.write(word, 1);
    expect_ok(operations.enqueue(other_.get()));
  }

  void gather() {
    for (TensorView* view : {&call_.k, &call_.v}) {
      const auto bytes = static_cast<size_t>(kRows * view->stride_seq * size_of(view->dtype));
      gathered_.push_back(must(GuardedMemory::poisoned(bytes)));
      *view = packed_view(gathered_.back().data(), view->dtype, kRows, view->heads, view->dim);
    }
  }

  void poison_gathered() {
    for (const TensorView* view : {&call_.k, &call_.v}) {
      expect_ok(cuda::fill(view->data, 0xff,
                           static_cast<size_t>(kRows * view->stride_seq * size_of(view->dtype))));
    }
  }

  /// Lenders and borrowers have been told, both may lend again, and counters count from 0. No
  /// canary of the gathered rows changed.
  void expect_words() {
    std::vector<uint32_t> words(kWords + kLoanCounters), expected(words.size());
    expect_ok(cuda::copy(words.data(), words_.data(), words_.size()));
    std::fill_n(expected.begin() + kLoans, kLoans + kLent, 1);
    EXPECT_EQ(words, expected);
    for (const GuardedMemory& memory : gathered_) EXPECT_TRUE(memory.read().ok());
  }

  cuda::DeviceScope scope_;
  cuda::OwnedStream stream_ = must(cuda::OwnedStream::make());
  cuda::OwnedStream other_ = must(cuda::OwnedStream::make());
  Carry results_;
  ForwardTiles call_;
  DeviceTensors tensors_;
  std::vector<GuardedMemory> gathered_;
  std::vector<Loan> loans_;
  std::vector<Lent> lent_;
  PulledKeys keys_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Staged> staged_;
  GuardedMemory workspace_;
  cuda::Memory words_;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

class HopperPulls : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Dims, HopperPulls, ::testing::Values(64, 72, 96, 128, 192, 256));

TEST_P(HopperPulls, AreRightInAnyOrderOfArrival) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Case c = pulling_case(GetParam(), dtype);
    const Inputs in = make_inputs(c, static_cast<uint64_t>(GetParam()));
    PulledCall call(c, in);
    const std::vector<double> first = call.run({0, 1, 2, 3}, 0ms);
    const Carry exact = exact_of(c, in);
    const Bars limit = bars(kHopper, dtype);
    EXPECT_LT(relative_rms(call.results().o.values(), exact.o.values()), limit.tensors);
    EXPECT_LT(lse_error(call.results().lse.values(), exact.lse.values()), limit.lse);
    for (const std::vector<size_t>& order :
         {std::vector<size_t>{3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
      EXPECT_TRUE(same_bits(call.run(order, 3ms), first)) << "loan " << order[0] << " first";
    }
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(same_bits(call.run({0, 1, 2, 3}, 0ms), first)) << "repeat " << i;
    }
    call.take_counters();
    EXPECT_TRUE(same_bits(call.run({0, 1, 2, 3}, 0ms), first)) << "counters in the workspace";
  }
}

TEST(HopperPulls, ErrorsNameWhatIsMissing) {
  const Case c = pulling_case(128, DType::kBF16);
  PulledCall call(c, make_inputs(c, 1));
  EXPECT_THAT(call.forward(nullptr).error().message, HasSubstr("no loans to pull from"));
  PulledKeys keys = call.keys();
  keys.loans.borrowed = keys.loans.borrowed.first(2);
  EXPECT_THAT(call.forward(&keys).error().message, HasSubstr("2 loans for K and V of 2 lenders"));
  keys = call.keys();
  keys.k.stride_seq += 8;
  EXPECT_THAT(call.forward(&keys).error().message, HasSubstr("own K of 600 rows has gaps"));
}

}  // namespace
}  // namespace longspan::testing
