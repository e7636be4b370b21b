#include "gpu/hopper/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gpu/device_tensors.h"
#include "providers/cuda/reference.h"
#include "providers/hopper/backward/plan.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"
#include "providers/rules.h"

namespace longspan::testing {
namespace {

enum class Row { kOfNoTile, kSeesNothing, kSees };

std::vector<Row> rows_of(const Case& c, bool keys, int64_t rows) {
  std::vector<Row> result(static_cast<size_t>(rows), Row::kOfNoTile);
  for (const PlacedTile& t : c.tiles) {
    const int64_t first = keys ? t.k_row : t.q_row;
    const int64_t count = keys ? t.tile.k.size() : t.tile.q.size();
    const int64_t others = keys ? t.tile.q.size() : t.tile.k.size();
    const Band band = keys ? transposed(t.tile.band) : t.tile.band;
    for (int64_t i = 0; i < count; ++i) {
      const Range seen = visible_keys(band, i, others);
      Row& row = result[static_cast<size_t>(first + i)];
      if (seen.first < seen.last) row = Row::kSees;
      if (row == Row::kOfNoTile) row = Row::kSeesNothing;
    }
  }
  return result;
}

/// Compares elements of rows that see something, and looks at the others.
void expect_gradient(const std::string& name, const Case& c, const Tensor& value,
                     const Tensor& exact, const Tensor& before, bool keys, double bar) {
  const bool whole = c.problem.features.whole;
  const std::vector<Row> rows = rows_of(c, keys, value.shape().rows);
  std::vector<double> values, expected;
  int64_t changed = 0;
  for (int64_t row = 0; row < value.shape().rows; ++row) {
    const Row kind = rows[static_cast<size_t>(row)];
    for (int64_t h = 0; h < value.shape().heads; ++h) {
      for (int64_t i = 0; i < value.shape().dim; ++i) {
        const double x = value.get(row, h, i);
        if (kind == Row::kSees) {
          values.push_back(x - (whole ? 0 : before.get(row, h, i)));
          expected.push_back(exact.get(row, h, i));
        } else if (whole) {
          changed += kind == Row::kOfNoTile ? !std::isnan(x) : x != 0;
        } else {
          changed += x != before.get(row, h, i);
        }
      }
    }
  }
  EXPECT_EQ(changed, 0) << name << (whole ? ", whole: " : ": ") << c.text();
  EXPECT_LT(relative_rms(values, expected), bar)
      << name << (whole ? ", whole: " : ": ") << c.text();
}

void expect_gradients(const Case& c, const Gradients& value, const Gradients& exact,
                      const Gradients& before, double factor) {
  const double bar = factor * bars(kHopper, c.problem.dtype).tensors;
  expect_gradient("dq", c, value.dq, exact.dq, before.dq, false, bar);
  expect_gradient("dk", c, value.dk, exact.dk, before.dk, true, bar);
  expect_gradient("dv", c, value.dv, exact.dv, before.dv, true, bar);
}

Gradients filled(const Case& c, DType dtype, double value) {
  Gradients g = zero_gradients(c, dtype);
  for (Tensor* t : {&g.dq, &g.dk, &g.dv}) t->fill(value);
  return g;
}

/// On a workspace of exactly the size asked for, which holds NaN.
Status compute_by(const Plan& plan, BackwardTiles call) {
  LONGSPAN_TRY(const auto staged, plan.stage(call.tiles));
  LONGSPAN_TRY(const auto stream, cuda::OwnedStream::make());
  LONGSPAN_TRY(const auto workspace, GuardedMemory::poisoned(plan.workspace_bytes()));
  DeviceTensors tensors;
  LONGSPAN_CHECK_OK(tensors.move(call));
  call.stream = stream.get();
  call.staged = staged.get();
  LONGSPAN_CHECK_OK(plan.backward(call, {workspace.data(), plan.workspace_bytes()}));
  LONGSPAN_CHECK_OK(cuda::synchronize(stream.get()));
  LONGSPAN_CHECK_OK(tensors.copy_back());
  const auto scratch = workspace.read();
  if (!scratch.ok()) return scratch.error();
  return {};
}

}  // namespace

void compute_by_hopper(const Case& c, const BackwardTiles& call, const BackwardWay& way) {
  const Device device = lane_device(1);
  const cuda::DeviceScope scope(device.ordinal);
  TileProblem problem = c.problem;
  problem.direction = Direction::kBackward;
  problem.score_bytes = way.score_bytes;
  const hopper::BackwardPlan plan(problem, device);
  const Status status = compute_by(plan, call);
  ASSERT_TRUE(status.ok()) << status.error().text() << ": " << c.text();
}

ExactBackward exact_backward(const Case& given, const Inputs& in) {
  Case c = given;
  c.problem.features.whole = false;
  Outcome exact = run(kCudaReference, c, in, lane_device(1), DType::kF64);
  const Tensor delta = make_delta(c, in, exact.carry.o, DType::kF64);
  const auto as = [](const Tensor& t, DType dtype) {
    Tensor::Shape shape = t.shape();
    shape.dtype = dtype;
    return t.copy(shape);
  };
  return {as(exact.carry.lse, DType::kF32), as(delta, DType::kF32),
          as(exact.carry.o, c.problem.dtype), std::move(exact.gradients)};
}

BackwardTiles call_of(const Case& c, const Inputs& in, const ExactBackward& exact,
                      Gradients& gradients, bool from_o) {
  BackwardTiles call{.q = in.q.view(),
                     .k = in.k.view(),
                     .v = in.v.view(),
                     .dout = in.dout.view(),
                     .lse = exact.lse.view(),
                     .dq = gradients.dq.view(),
                     .dk = gradients.dk.view(),
                     .dv = gradients.dv.view(),
                     .tiles = c.tiles,
                     .scale = c.scale,
                     .terms = c.terms};
  if (from_o) {
    call.o = exact.o.view();
  } else {
    call.delta = exact.delta.view();
  }
  return call;
}

void check_added(const Case& given, const Inputs& in, const ExactBackward& exact,
                 const BackwardWay& way) {
  Case c = given;
  c.problem.features.whole = false;
  Gradients value = filled(c, DType::kF32, 0.25);
  compute_by_hopper(c, call_of(c, in, exact, value), way);
  expect_gradients(c, value, exact.gradients, filled(c, DType::kF32, 0.25), way.factor);
}

void check_whole_gradients(const Case& given, const Inputs& in, const ExactBackward& exact,
                           const BackwardWay& way) {
  Case c = given;
  c.problem.features.whole = true;
  Gradients value = filled(c, c.problem.dtype, NAN);
  compute_by_hopper(c, call_of(c, in, exact, value, way.from_o), way);
  expect_gradients(c, value, exact.gradients, filled(c, c.problem.dtype, NAN), way.factor);
}

void check_backward(const Case& c, uint64_t seed, const BackwardWay& way) {
  const Inputs in = make_inputs(c, seed);
  const ExactBackward exact = exact_backward(c, in);
  check_added(c, in, exact, way);
  check_whole_gradients(c, in, exact, way);
}

}  // namespace longspan::testing
