// cudnn on the device against cpu/reference on the host.
#pragma once

#include <cstdint>

#include "providers/support.h"

namespace longspan::testing {

/// What the provider computed and what is right.
struct Compared {
  Outcome device;  // f32, or whole: LSE in f32 and the rest in the problem's type
  Outcome exact;   // f64
  Tensor lse;      // given to backward
  Tensor delta;
};

/// Forward from an empty carry, then backward with the exact LSE and delta; the device's part stays
/// empty.
Compared compute_exact(const Case& c, const Inputs& in);
/// What a call gets: an empty carry and zeros, or NaN where results are whole.
Outcome empty_results(const Case& c);
/// The device's part, from empty results.
void compute_device(const Case& c, const Inputs& in, Compared& compared);
/// Both.
Compared compute_both(const Case& c, const Inputs& in);

/// Fails where a tensor is further from the exact one than the bar of GPUs times `factor`.
void expect_close(const Case& c, const Compared& compared, double factor = 1);

/// Both steps, on inputs drawn from `seed`.
void check_case(const Case& c, uint64_t seed, double factor = 1);

/// A problem of `heads_q` heads on `heads_kv`, whose tile or tiles the caller adds.
Case make_case(int64_t rows_q, int64_t rows_k, int64_t dim_qk, int64_t dim_v,
               DType dtype = DType::kBF16);

/// Whether every element is finite.
bool finite(const Tensor& tensor);

}  // namespace longspan::testing
