#include "gpu/prepared/scene.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gpu/prepared/test_store.h"
#include "longspan/libraries.h"
#include "providers/lane.h"
#include "providers/prepared/prepared.h"

namespace longspan::testing {
namespace {

class NeedsStore : public ::testing::Environment {
 public:
  void SetUp() override {
    const Status set = set_prepared_store(test_store());
    ASSERT_TRUE(set.ok()) << set.error().text();
  }
};

[[maybe_unused]] const ::testing::Environment* const kNeedsStore =
    ::testing::AddGlobalTestEnvironment(new NeedsStore);

std::vector<bool> rows_of(const std::vector<PlacedTile>& tiles, bool keys, int64_t rows) {
  std::vector<bool> used(static_cast<size_t>(rows));
  for (const PlacedTile& t : tiles) {
    const int64_t first = keys ? t.k_row : t.q_row;
    const int64_t count = keys ? t.tile.k.size() : t.tile.q.size();
    for (int64_t i = 0; i < count; ++i) used[static_cast<size_t>(first + i)] = true;
  }
  return used;
}

struct Written {
  std::vector<double> value, exact;
};

/// The elements that had to be written. Fails where another one of whole results was.
Written written(const Case& c, bool keys, const Tensor& value, const Tensor& exact) {
  const bool whole = c.problem.features.whole;
  const auto used = rows_of(c.tiles, keys, value.shape().rows);
  Written result;
  for (int64_t row = 0; row < value.shape().rows; ++row) {
    for (int64_t h = 0; h < value.shape().heads; ++h) {
      for (int64_t i = 0; i < value.shape().dim; ++i) {
        const double x = value.get(row, h, i);
        if (whole && !used[static_cast<size_t>(row)]) {
          EXPECT_TRUE(std::isnan(x)) << "row " << row << " of no tile was written";
          continue;
        }
        result.value.push_back(x);
        result.exact.push_back(exact.get(row, h, i));
      }
    }
  }
  return result;
}

void check(Case c, uint64_t seed, bool backward, double factor) {
  const Inputs in = make_inputs(c, seed);
  Compared r = compute_exact(c, in);
  for (const bool whole : {false, true}) {
    c.problem.features.whole = whole;
    for (const Given given : {Given::kDelta, Given::kO}) {
      SCOPED_TRACE(std::string(whole ? "whole" : "partial") +
                   (given == Given::kO ? " from o" : " from delta"));
      if (given == Given::kO && (!whole || !backward)) continue;
      compute_prepared(c, in, given, backward, r);
      expect_right(c, r, backward, factor);
    }
  }
}

}  // namespace

void compute_prepared(const Case& c, const Inputs& in, Given given, bool backward, Compared& r) {
  r.device = empty_results(c);
  forward(kPrepared, lane_device(1), c, in, c.tiles, r.device.carry);
  if (!backward) return;
  TileProblem problem = c.problem;
  problem.direction = Direction::kBackward;
  const bool with_o = given == Given::kO;
  const Gradients& g = r.device.gradients;
  const Status status =
      compute(kPrepared, lane_device(1), problem,
              BackwardTiles{.q = in.q.view(),
                            .k = in.k.view(),
                            .v = in.v.view(),
                            .dout = in.dout.view(),
                            .lse = with_o ? r.device.carry.lse.view() : r.lse.view(),
                            .delta = with_o ? TensorView() : r.delta.view(),
                            .o = with_o ? r.device.carry.o.view() : TensorView(),
                            .dq = g.dq.view(),
                            .dk = g.dk.view(),
                            .dv = g.dv.view(),
                            .tiles = c.tiles,
                            .scale = c.scale});
  ASSERT_TRUE(status.ok()) << status.error().text();
}

void expect_right(const Case& c, const Compared& r, bool backward, double factor) {
  const Bars limit = bars(kPrepared, c.problem.dtype);
  const auto close = [&](const char* name, bool keys, const Tensor& value, const Tensor& exact) {
    const Written w = written(c, keys, value, exact);
    EXPECT_LT(relative_rms(w.value, w.exact), factor * limit.tensors) << name << ": " << c.text();
  };
  close("o", false, r.device.carry.o, r.exact.carry.o);
  const Written lse = written(c, false, r.device.carry.lse, r.exact.carry.lse);
  EXPECT_LT(lse_error(lse.value, lse.exact), limit.lse) << c.text();
  if (!backward) return;
  close("dq", false, r.device.gradients.dq, r.exact.gradients.dq);
  close("dk", true, r.device.gradients.dk, r.exact.gradients.dk);
  close("dv", true, r.device.gradients.dv, r.exact.gradients.dv);
}

void check_prepared(Case c, uint64_t seed, double factor) {
  check(std::move(c), seed, true, factor);
}

void check_forward(Case c, uint64_t seed, double factor) {
  check(std::move(c), seed, false, factor);
}

}  // namespace longspan::testing
