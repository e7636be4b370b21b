// A consumer warpgroup: P and dS of 64 queries x 256 keys, unit after unit.
//
//   S = Q K^T,  P = exp2(S scale - LSE),  dP = dO V^T,  dS = P (dP - delta)
//
// Every step of 64 columns is two products, of the left and of the right 128 keys. At the end of S
// or dP the left half is turned into P or dS while the right one multiplies, and the right half
// while the left one of what follows does: from S to dP, where exponentials take longest, for two
// steps on either side. P and dS wait, packed, in one set of registers; they are stored inside the
// product after them. P of scores with terms is stored at once.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scores_rows.cuh"
#include "providers/hopper/backward/scores_staging.cuh"
#include "providers/hopper/backward/scores_terms.cuh"

namespace longspan::hopper {

enum class Product { kScores, kDp };

template <class T, bool TERMS>
class ScoreConsumer {
 public:
  __device__ __forceinline__ ScoreConsumer(const ScoreParameters& p, const ScoreShared& sm,
                                           int group)
      : p_(p),
        sm_(sm),
        group_(group),
        staging_(sm, group),
        rows_(p, group),
        terms_(p, rows_.upper()) {
#pragma unroll
    for (int i = 0; i < 64; ++i) right_[i] = 0, packed_[i] = 0;
  }

  __device__ __forceinline__ void run() {
    while (next_unit()) {
      multiply_scores(p_.steps_qk);
      multiply_dp(p_.steps_v);
    }
    wgmma_wait<0>();
    accumulators_ready(right_);
    if (number_ >= 0) {
      finish<Product::kDp, 1>(right_);
      store<Product::kDp, 0>(block_);
      store<Product::kDp, 1>(block_);
    }
    staging_.finish();
  }

 private:
  using C = ScoreConfig;

  /// Waits until the unit after this one is announced. False: there is none.
  __device__ __forceinline__ bool next_unit() const {
    const int next = number_ + 1;
    bounded_wait(sm_.unit_full + (next & (C::kUnits - 1)) * 8, next / C::kUnits & 1);
    return unit_at(next).head >= 0;
  }
  __device__ __forceinline__ volatile ScoreUnit& unit_at(int number) const {
    return sm_.units[number & (C::kUnits - 1)];
  }

  /// Tokens of this unit.
  __device__ __forceinline__ const Tokens& tokens() const {
    return sm_.tokens[number_ & (C::kUnits - 1)];
  }

  /// Makes the next unit this one.
  __device__ __forceinline__ void begin_unit() {
    __syncwarp();
    if (number_ >= 0 && (threadIdx.x & 31) == 0) {
      mbarrier_arrive(sm_.unit_empty + (number_ & (C::kUnits - 1)) * 8);
    }
    ++number_;
    volatile ScoreUnit& unit = unit_at(number_);
    last_block_ = block_;
    block_ = unit.block + group_ * unit.pitch;
    rows_.begin(unit);
  }

  /// S of the next unit. On entry the right half of dP of this one is open.
  __device__ __forceinline__ void multiply_scores(int steps) {
    issue_next<0>(left_, 0);
    rows_.fetch(unit_at(number_ + 1));
    wgmma_wait<1>();
    release_open(0);
    accumulators_ready(right_);
    finish<Product::kDp, 1>(right_);
    issue<1>(right_, step_, 0);
    begin_unit();
    ++step_;
    open_ = 1;
#pragma unroll 1
    for (int i = 1; i < steps - 2; ++i, ++step_) {
      issue_next<0>(left_, 1);
      issue<1>(right_, step_, 1);
      wgmma_wait<2>();
      release_open(0);
      open_ = 1;
      if (number_ > 0 && i == 1) store<Product::kDp, 0>(last_block_);
    }
    // The left halves of the last two steps, then the right ones.
    issue_next<0>(left_, 1);
    ++step_;
    issue_next<0>(left_, 1);
    issue<1>(right_, step_ - 1, 1);
    issue<1>(right_, step_, 1);
    wgmma_wait<4>();
    release_open(1);
    ++step_;
    open_ = 2;
    if (number_ > 0 && steps < 4) store<Product::kDp, 0>(last_block_);
    if (number_ > 0) store<Product::kDp, 1>(last_block_);
    if constexpr (TERMS) terms_.draw(tokens(), unit_at(number_).head);
    wgmma_wait<2>();
    accumulators_ready(left_);
    rows_.take_fetched(unit_at(number_));
    finish<Product::kScores, 0>(left_);
  }

  /// dP of this unit. On entry the right half of its S is open.
  __device__ __forceinline__ void multiply_dp(int steps) {
    // The left halves of the first two steps, then the right ones.
    issue_next<0>(left_, 0);
    ++step_;
    issue_next<0>(left_, 1);
    wgmma_wait<2>();
    release_open(1);
    accumulators_ready(right_);
    finish<Product::kScores, 1>(right_);
    issue<1>(right_, step_ - 1, 0);
    issue<1>(right_, step_, 1);
    ++step_;
    open_ = 2;
    if (!TERMS && steps < 4) store<Product::kScores, 0>(block_);
    if (!TERMS && steps < 3) store<Product::kScores, 1>(block_);
#pragma unroll 1
    for (int i = 2; i < steps; ++i, ++step_) {
      issue_next<0>(left_, 1);
      issue<1>(right_, step_, 1);
      wgmma_wait<2>();
      release_open(0);
      open_ = 1;
      if (TERMS) continue;
      if (i == 2) {
        if (steps >= 4) store<Product::kScores, 0>(block_);
        if (steps == 3) store<Product::kScores, 1>(block_);
      }
      if (i == 3) store<Product::kScores, 1>(block_);
    }
    wgmma_wait<1>();
    accumulators_ready(left_);
    rows_.take_delta();
    finish<Product::kDp, 0>(left_);
  }

  /// Frees the stages whose products are over: `open_` ones, the last of them `behind` + 1 steps
  /// ago.
  __device__ __forceinline__ void release_open(int behind) const {
    if (!leads_warpgroup()) return;
    const int last = step_ - 1 - behind;
    if (open_ > 0) mbarrier_arrive(sm_.empty + (last & (C::kStages - 1)) * 8);
    if (open_ > 1) mbarrier_arrive(sm_.empty + (last - 1 & (C::kStages - 1)) * 8);
  }
  /// Waits for the stage of this step before its first product.
  template <int HALF>
  __device__ __forceinline__ void issue_next(float (&d)[64], int accumulate) const {
    bounded_wait(sm_.full + (step_ & (C::kStages - 1)) * 8, step_ / C::kStages & 1);
    issue<HALF>(d, step_, accumulate);
  }
  template <int HALF>
  __device__ __forceinline__ void issue(float (&d)[64], int step, int accumulate) const {
    const uint32_t stage = opaque(sm_.stages) + (step & (C::kStages - 1)) * C::kStageBytes;
    const uint32_t low_a = low_k_major(stage + group_ * 8192);
    const uint32_t low_b = low_k_major(stage + C::kQueryBytes + HALF * 16384);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      Wgmma<T, 128>::template ss<0, 0>(d, descriptor(low_a + kk * kStepK),
                                       descriptor(low_b + kk * kStepK), kk > 0 || accumulate);
    }
    wgmma_commit();
  }

  /// Turns a half of S into P, or of dP into dS.
  template <Product PRODUCT, int HALF>
  __device__ __forceinline__ void finish(float (&d)[64]) {
    constexpr bool scores = PRODUCT == Product::kScores;
    if constexpr (TERMS && scores) return make_p<HALF>(d);
    if constexpr (TERMS) terms_.template drop<HALF>(d);
    if (rows_.hides(HALF)) {
      rows_.seen(unit_at(number_), HALF * 128).hide(d, scores ? p_.hidden : 0);
    }
    if constexpr (scores) {
      exponentials<HALF>(d);
    } else {
      differences<HALF>(d);
    }
  }
  template <int HALF>
  __device__ __forceinline__ void exponentials(const float (&s)[64]) {
    const float scale = p_.scale_log2;
    const Rows row = rows_.subtracted;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      packed_[HALF * 32 + 2 * i] = pack<T>(exp2_fast(fmaf(s[4 * i], scale, -row.upper)),
                                           exp2_fast(fmaf(s[4 * i + 1], scale, -row.upper)));
      packed_[HALF * 32 + 2 * i + 1] = pack<T>(exp2_fast(fmaf(s[4 * i + 2], scale, -row.lower)),
                                               exp2_fast(fmaf(s[4 * i + 3], scale, -row.lower)));
    }
  }
  /// Makes P of S with terms, and sends it to scratch. What dS will be made of remains: P with the
  /// derivatives of soft caps, and with the pairs that dropout drops.
  template <int HALF>
  __device__ __forceinline__ void make_p(const float (&s)[64]) {
    if (p_.terms.cap_log2 == 0) {
      exponentials<HALF, Cap::kNone>(s);
    } else if (p_.terms.wide_cap) {
      exponentials<HALF, Cap::kWide>(s);
    } else {
      exponentials<HALF, Cap::kNarrow>(s);
    }
  }
  template <int HALF, Cap CAP>
  __device__ __forceinline__ void exponentials(const float (&all)[64]) {
    const Rows lse = rows_.subtracted;
    HalfTerms half = terms_.half(tokens(), unit_at(number_).head, HALF);
    staging_.open();
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      uint32_t* const packed = packed_ + HALF * 32 + part * 4;
      float s[8], derivative[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) s[i] = all[8 * part + i];
      terms_.template apply<CAP>(half, part, s, derivative);
      if (rows_.hides(HALF)) {
        rows_.seen(unit_at(number_), HALF * 128 + 16 * part).hide(s, -kInfinity);
      }
      uint32_t p[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float row = i % 2 == 0 ? lse.upper : lse.lower;
        const float a = exp2_fast(s[2 * i] - row), b = exp2_fast(s[2 * i + 1] - row);
        p[i] = pack<T>(a, b);
        packed[i] =
            CAP == Cap::kNone ? p[i] : pack<T>(a * derivative[2 * i], b * derivative[2 * i + 1]);
      }
      terms_.drop(HALF, part, p);
      staging_.put(part, p[0], p[1], p[2], p[3]);
      half.before = packed[0] | packed[1] | packed[2] | packed[3];
    }
    staging_.close(scratch_of<Product::kScores, HALF>(block_));
  }
  template <int HALF>
  __device__ __forceinline__ void differences(const float (&dp)[64]) {
    const Rows row = rows_.subtracted;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      uint32_t &upper = packed_[HALF * 32 + 2 * i], &lower = packed_[HALF * 32 + 2 * i + 1];
      const float2 u = unpack<T>(upper), l = unpack<T>(lower);
      upper = pack<T>(u.x * (dp[4 * i] - row.upper), u.y * (dp[4 * i + 1] - row.upper));
      lower = pack<T>(l.x * (dp[4 * i + 2] - row.lower), l.y * (dp[4 * i + 3] - row.lower));
    }
  }
  /// A packed half to the scratch of P or dS.
  template <Product PRODUCT, int HALF>
  __device__ __forceinline__ void store(int block) {
    staging_.open();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int x = HALF * 32 + i * 4;
      staging_.put(i, packed_[x], packed_[x + 1], packed_[x + 2], packed_[x + 3]);
    }
    staging_.close(scratch_of<PRODUCT, HALF>(block));
  }
  template <Product PRODUCT, int HALF>
  __device__ __forceinline__ char* scratch_of(int block) const {
    char* const to = PRODUCT == Product::kScores ? p_.chunk.p : p_.chunk.ds;
    return to + static_cast<int64_t>(block + HALF * 2) * kBlockBytes;
  }

  const ScoreParameters& p_;
  const ScoreShared& sm_;
  int group_;
  ScoreStaging staging_;
  float left_[64], right_[64];  // accumulators
  uint32_t packed_[64];         // a half in 32 each
  UnitRows rows_;
  UnitTerms terms_;
  int number_ = -1, step_ = 0;      // this unit, and step
  int open_ = 0;                    // steps before this one whose stages are not free
  int block_ = 0, last_block_ = 0;  // of scratch, of this unit and the one before
};

}  // namespace longspan::hopper
