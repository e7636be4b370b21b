// hopper against cuda/reference, both on the device.
#pragma once

#include <cstdint>

#include "providers/support.h"

namespace longspan::testing {

/// Columns of Q and K, and of V.
struct Dims {
  int64_t qk, v;
};
/// What each kernel is for.
inline constexpr Dims kKernelDims[] = {{64, 64},   {96, 96},   {128, 128}, {192, 128}, {192, 192},
                                       {256, 256}, {320, 320}, {384, 384}, {448, 448}, {512, 512}};

/// A problem of four query heads on two key heads, whose tile or tiles the caller adds.
Case make_case(int64_t rows_q, int64_t rows_k, int64_t dim_qk, int64_t dim_v,
               DType dtype = DType::kBF16);

/// The tiles of `c` from an empty carry, in float64. `c` may ask for whole results.
Carry exact_of(const Case& c, const Inputs& in);

/// Merged results, from an empty carry: fails where one is further from the exact one than the bar
/// of GPUs times `factor`.
void check_merged(const Case& c, const Inputs& in, double factor = 1);

/// Whole results over NaN: fails as check_merged, and where a row of no tile was written.
void check_whole(const Case& c, const Inputs& in, double factor = 1);

/// Fails where results are further from the exact ones than the bar of GPUs times `factor`, and,
/// where they are whole, where a row of no tile is a number.
void expect_close(const Case& c, const Carry& value, const Carry& exact, double factor = 1);

/// Both, on inputs drawn from `seed`.
void check_case(const Case& c, uint64_t seed, double factor = 1);

/// Makes every row of q, k, v and dout that lies in no tile NaN.
void poison_outside(const Case& c, Inputs& in);

}  // namespace longspan::testing
