// Providers against cpu/reference: shapes, bands, groups, types, strides, splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kLongRows = 700;  // the reference is slow here
constexpr int kRandomCases = 60;
#else
constexpr int64_t kLongRows = 4096;
constexpr int kRandomCases = 250;
#endif

/// True when many rows see a single key: their gradients are 0 = p (dP - delta) by cancellation, so
/// the tensor's rms says little about the size of the numbers that were rounded.
bool cancels(const Case& c) {
  std::vector<int64_t> keys(static_cast<size_t>(c.problem.capacity_q));
  for (const PlacedTile& t : c.tiles) {
    for (int64_t i = 0; i < t.tile.q.size(); ++i) {
      const Range seen = visible_keys(t.tile.band, i, t.tile.k.size());
      keys[static_cast<size_t>(t.q_row + i)] += std::max<int64_t>(0, seen.last - seen.first);
    }
  }
  const auto seeing = std::count_if(keys.begin(), keys.end(), [](int64_t n) { return n > 0; });
  return std::count(keys.begin(), keys.end(), 1) * 20 > seeing;
}

struct Expected {
  Carry carry;
  Gradients gradients;
};

class AgainstReference : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }

  /// Whether O leaves in 16 bits. Delta is then made of that, and where rows see few keys
  /// dP - delta keeps little but its rounding: backward is judged by the delta that it was given.
  bool rounds_o(const Case& c) const {
    const Verdict verdict = provider().consider(c.problem, device_);
    return declined(verdict) == nullptr && std::get<Offer>(verdict).partials_16bit;
  }

  Gradients gradients_of(const Case& c, const Inputs& in, const Carry& given) const {
    Gradients gradients = zero_gradients(c, DType::kF64);
    const Tensor delta = make_delta(c, in, given.o, DType::kF64);
    backward(reference(), host_, c, in, c.tiles, given.lse, delta, gradients);
    return gradients;
  }

  Expected expect(const Case& c, const Inputs& in) const {
    Expected e{empty_carry(c, DType::kF64), zero_gradients(c, DType::kF64)};
    forward(reference(), host_, c, in, c.tiles, e.carry);
    e.gradients = gradients_of(c, in, e.carry);
    return e;
  }

  DType wide(const Case& c) const {
    return is_oracle(provider()) ? DType::kF64 : accumulator(c.problem.dtype);
  }

  double bar(const Case& c) const {
    const DType dtype = c.problem.dtype;
    const double base = bars(provider(), dtype).tensors;
    // f32 takes dP - delta in float64; 16-bit problems are rounded far above what is left.
    return dtype != DType::kF32 && cancels(c) ? 10 * base : base;
  }

  void check(const Case& c, const Tensor& value, const Tensor& expected, const char* tensor) const {
    const DType dtype = c.problem.dtype;
    const std::string what = tensor + (": " + c.text());
    EXPECT_LT(relative_rms(value.values(), expected.values()), bar(c)) << what;
    if (dtype == DType::kF64 || dtype == DType::kF32) return;
    const double host_bar = dtype == DType::kF16 ? 3e-4 : 2.5e-3;
    const double device_bar = dtype == DType::kF16 ? 6e-4 : 4e-3;
    // Gradients of one-key rows are all but zero, where even the exact result rounds badly.
    const double ideal = relative_rms(rounded(expected.values(), dtype), expected.values());
    EXPECT_LT(relative_rms(rounded(value.values(), dtype), expected.values()),
              std::max(device_.is_cuda() ? device_bar : host_bar, 1.05 * ideal))
        << what;
  }

  void check_lse(const Case& c, const Tensor& lse, const Tensor& expected) const {
    EXPECT_LT(lse_error(lse.values(), expected.values()), bars(provider(), c.problem.dtype).lse)
        << c.text();
  }

  void check_case(const Case& c, uint64_t seed) const {
    if (!offered(provider(), device_, c.problem)) return;
    const Inputs in = make_inputs(c, seed);
    Expected e = expect(c, in);
    const Outcome r = run(provider(), c, in, device_, wide(c));
    if (rounds_o(c)) e.gradients = gradients_of(c, in, r.carry);
    check(c, r.carry.o, e.carry.o, "o");
    check_lse(c, r.carry.lse, e.carry.lse);
    check(c, r.gradients.dq, e.gradients.dq, "dq");
    check(c, r.gradients.dk, e.gradients.dk, "dk");
    check(c, r.gradients.dv, e.gradients.dv, "dv");
  }

  const Device device_ = lane_device(3);
  const Device host_ = device(3);
};

INSTANTIATE_TEST_SUITE_P(Lane, AgainstReference, ::testing::ValuesIn(compared_providers()), label);
TEST_P(AgainstReference, RandomShapes) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kRandomCases && !HasFailure(); ++i) check_case(random_case(random), 1000 + i);
}

TEST_P(AgainstReference, EveryHeadDim) {
  for (const int64_t dim : {1, 3, 8, 17, 32, 64, 80, 96, 128, 192, 256, 257, 512, 575, 576}) {
    Case c;
    c.problem = {.heads_q = 2,
                 .heads_kv = 1,
                 .group = 2,
                 .dim_qk = dim,
                 .dim_v = 577 - dim,
                 .capacity_q = 150,
                 .capacity_k = 131};
    c.scale = 1 / std::sqrt(static_cast<double>(dim));
    c.tiles = {make_placed(0, 150, 0, 131, {-kUnbounded, -19})};
    check_case(c, static_cast<uint64_t>(dim));
    c.problem.dtype = DType::kF64;
    check_case(c, static_cast<uint64_t>(dim));
  }
}

TEST_P(AgainstReference, OneQueryAgainstManyKeysAndBack) {
  Case c;
  c.problem = {.heads_q = 4,
               .heads_kv = 2,
               .group = 2,
               .dim_qk = 64,
               .dim_v = 64,
               .capacity_q = 1,
               .capacity_k = 1500};
  c.scale = 0.125;
  c.tiles = {make_placed(0, 1, 0, 1500, {})};
  check_case(c, 1);
  c.problem.capacity_q = 1500;
  c.problem.capacity_k = 40;
  c.tiles = {make_placed(0, 1500, 39, 1, {}), make_placed(0, 1500, 0, 39, {})};
  check_case(c, 2);
}

/// Cuts a tile's keys at `at`; the second part's band is translated.
std::vector<PlacedTile> split_keys(const PlacedTile& t, int64_t at) {
  PlacedTile a = t;
  PlacedTile b = t;
  a.tile.k = t.tile.k.slice(0, at);
  b.tile.k = t.tile.k.slice(at, t.tile.k.size());
  b.k_row += at;
  if (b.tile.band.lo > -kUnbounded) b.tile.band.lo -= at;
  if (b.tile.band.hi < kUnbounded) b.tile.band.hi -= at;
  return {a, b};
}

TEST_P(AgainstReference, CarriedCallsEqualOneCall) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 40; ++i) {
    Case c = random_case(random);
    c.tiles.resize(1);
    const int64_t nk = c.tiles[0].tile.k.size();
    if (nk == 0 || !offered(provider(), device_, c.problem)) continue;
    const Inputs in = make_inputs(c, 50 + i);
    const Expected e = expect(c, in);
    Carry carry = empty_carry(c, wide(c));
    Gradients gradients = zero_gradients(c, wide(c));
    const int64_t at = std::uniform_int_distribution<int64_t>(0, nk)(random);
    const std::vector<PlacedTile> parts = split_keys(c.tiles[0], at);
    // One part a call, the later keys first.
    forward(provider(), device_, c, in, {&parts[1], 1}, carry);
    forward(provider(), device_, c, in, {&parts[0], 1}, carry);
    check(c, carry.o, e.carry.o, "o");
    check_lse(c, carry.lse, e.carry.lse);
    const Tensor delta = make_delta(c, in, carry.o, wide(c));
    for (const PlacedTile& part : parts) {
      backward(provider(), device_, c, in, {&part, 1}, carry.lse, delta, gradients);
    }
    check(c, gradients.dq, e.gradients.dq, "dq");
    check(c, gradients.dk, e.gradients.dk, "dk");
    check(c, gradients.dv, e.gradients.dv, "dv");
  }
}

TEST_P(AgainstReference, LongSequences) {
  for (const int64_t dim : {16, 64}) {
    Case c;
    c.problem = {.heads_q = 1,
                 .heads_kv = 1,
                 .dim_qk = dim,
                 .dim_v = dim,
                 .capacity_q = kLongRows,
                 .capacity_k = kLongRows};
    c.scale = 1 / std::sqrt(static_cast<double>(dim));
    c.tiles = {make_placed(0, kLongRows, 0, kLongRows, {-kUnbounded, 0})};
    check_case(c, 3);
    c.tiles = {make_placed(0, kLongRows, 0, kLongRows, {})};
    check_case(c, 4);
  }
}

TEST_P(AgainstReference, PackedSequencesInOneCall) {
  Case c;
  c.problem = {.heads_q = 2,
               .heads_kv = 1,
               .group = 2,
               .dim_qk = 16,
               .dim_v = 24,
               .capacity_q = 16 * 1100,
               .capacity_k = 16 * 1100};
  c.scale = 0.25;
  for (int64_t i = 0; i < 1100; ++i) {  // more than one wave
    c.tiles.push_back(make_placed(16 * i, 1 + i % 16, 16 * i, 1 + i % 16, {-kUnbounded, 0}));
  }
  check_case(c, 5);
}

}  // namespace
}  // namespace longspan::testing
