#include "gpu/cudnn/against_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"

namespace longspan::testing {

Compared compute_exact(const Case& given, const Inputs& in) {
  const Device host = device(0);
  Case c = given;
  c.problem.features.whole = false;
  Compared r{{empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)},
             {empty_carry(c, DType::kF64), zero_gradients(c, DType::kF64)},
             Tensor({}),
             Tensor({})};
  forward(reference(), host, c, in, c.tiles, r.exact.carry);
  const Tensor delta = make_delta(c, in, r.exact.carry.o, DType::kF64);
  backward(reference(), host, c, in, c.tiles, r.exact.carry.lse, delta, r.exact.gradients);
  const auto narrow = [](const Tensor& wide) {
    Tensor::Shape shape = wide.shape();
    shape.dtype = DType::kF32;
    return wide.copy(shape);
  };
  r.lse = narrow(r.exact.carry.lse);
  r.delta = narrow(delta);
  return r;
}

Outcome empty_results(const Case& c) {
  if (!c.problem.features.whole) {
    return {empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)};
  }
  Outcome r{empty_carry(c, c.problem.dtype), zero_gradients(c, c.problem.dtype)};
  r.carry.lse = empty_carry(c, DType::kF32).lse;
  for (Tensor* t : {&r.carry.o, &r.carry.lse, &r.gradients.dq, &r.gradients.dk, &r.gradients.dv}) {
    t->fill(NAN);
  }
  return r;
}

void compute_device(const Case& c, const Inputs& in, Compared& r) {
  r.device = empty_results(c);
  forward(kCudnn, lane_device(1), c, in, c.tiles, r.device.carry);
  backward(kCudnn, lane_device(1), c, in, c.tiles, r.lse, r.delta, r.device.gradients);
}

Compared compute_both(const Case& c, const Inputs& in) {
  Compared r = compute_exact(c, in);
  compute_device(c, in, r);
  return r;
}

void expect_close(const Case& c, const Compared& r, double factor) {
  const Bars limit = bars(kCudnn, c.problem.dtype);
  const auto close = [&](const Tensor& value, const Tensor& exact, const char* name) {
    EXPECT_LT(relative_rms(value.values(), exact.values()), factor * limit.tensors)
        << name << ": " << c.text();
  };
  close(r.device.carry.o, r.exact.carry.o, "o");
  EXPECT_LT(lse_error(r.device.carry.lse.values(), r.exact.carry.lse.values()), limit.lse)
      << c.text();
  close(r.device.gradients.dq, r.exact.gradients.dq, "dq");
  close(r.device.gradients.dk, r.exact.gradients.dk, "dk");
  close(r.device.gradients.dv, r.exact.gradients.dv, "dv");
}

void check_case(const Case& c, uint64_t seed, double factor) {
  const Inputs in = make_inputs(c, seed);
  expect_close(c, compute_both(c, in), factor);
}

Case make_case(int64_t rows_q, int64_t rows_k, int64_t dim_qk, int64_t dim_v, DType dtype) {
  Case c;
  c.problem = {.dtype = dtype,
               .heads_q = 4,
               .heads_kv = 2,
               .group = 2,
               .dim_qk = dim_qk,
               .dim_v = dim_v,
               .capacity_q = rows_q,
               .capacity_k = rows_k};
  c.scale = 1 / std::sqrt(static_cast<double>(dim_qk));
  return c;
}

bool finite(const Tensor& tensor) {
  const std::vector<double> values = tensor.values();
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

}  // namespace longspan::testing
