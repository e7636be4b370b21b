// Whole results of the providers that offer them, against float64: every row of a tile is written
// over the NaN that it held, and no other one.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

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

/// The elements of the tiles' rows. Fails where another one was written.
Written written(const Case& c, bool keys, const Tensor& value, const Tensor& exact) {
  Written result;
  const auto used = rows_of(c.tiles, keys, value.shape().rows);
  for (int64_t row = 0; row < value.shape().rows; ++row) {
    for (int64_t h = 0; h < value.shape().heads; ++h) {
      for (int64_t i = 0; i < value.shape().dim; ++i) {
        const double x = value.get(row, h, i);
        if (!used[static_cast<size_t>(row)]) {
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

void expect_whole(const Provider& provider, const Case& c, const Compared& r, double factor) {
  const double limit = factor * bars(kCudnn, c.problem.dtype).tensors;
  const auto close = [&](const char* name, bool keys, const Tensor& value, const Tensor& exact) {
    const Written w = written(c, keys, value, exact);
    EXPECT_LT(relative_rms(w.value, w.exact), limit)
        << provider.name() << " " << name << ": " << c.text();
  };
  close("o", false, r.device.carry.o, r.exact.carry.o);
  close("dq", false, r.device.gradients.dq, r.exact.gradients.dq);
  close("dk", true, r.device.gradients.dk, r.exact.gradients.dk);
  close("dv", true, r.device.gradients.dv, r.exact.gradients.dv);
  const Written lse = written(c, false, r.device.carry.lse, r.exact.carry.lse);
  EXPECT_LT(lse_error(lse.value, lse.exact), 1e-4) << provider.name() << ": " << c.text();
}

/// O of this provider, which its own backward reads, and no delta.
void backward_with_o(const Provider& provider, const Case& c, const Inputs& in, Compared& r) {
  TileProblem problem = c.problem;
  problem.direction = Direction::kBackward;
  r.device.gradients = std::move(empty_results(c).gradients);
  const Status status = compute(provider, lane_device(1), problem,
                                BackwardTiles{.q = in.q.view(),
                                              .k = in.k.view(),
                                              .v = in.v.view(),
                                              .dout = in.dout.view(),
                                              .lse = r.device.carry.lse.view(),
                                              .o = r.device.carry.o.view(),
                                              .dq = r.device.gradients.dq.view(),
                                              .dk = r.device.gradients.dk.view(),
                                              .dv = r.device.gradients.dv.view(),
                                              .tiles = c.tiles,
                                              .scale = c.scale});
  ASSERT_TRUE(status.ok()) << status.error().text();
}

void check_whole(Case c, uint64_t seed, double factor = 1) {
  const Inputs in = make_inputs(c, seed);
  Compared r = compute_exact(c, in);
  c.problem.features.whole = true;
  for (const Provider* provider : lane_providers()) {
    if (!offered(*provider, lane_device(1), c.problem)) continue;
    r.device = empty_results(c);
    forward(*provider, lane_device(1), c, in, c.tiles, r.device.carry);
    backward(*provider, lane_device(1), c, in, c.tiles, r.lse, r.delta, r.device.gradients);
    expect_whole(*provider, c, r, factor);
    backward_with_o(*provider, c, in, r);
    expect_whole(*provider, c, r, factor);
  }
}

TEST(CudnnWhole, DenseTiles) {
  uint64_t seed = 60;
  for (const auto& [qk, v] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const Band& band : {kFull, kCausal, Band{-40, 0}, Band{-40, 30}}) {
      Case c = make_case(300, 333, qk, v, qk == 64 ? DType::kF16 : DType::kBF16);
      c.tiles = {make_placed(0, 300, 0, 333, band)};
      check_whole(c, ++seed);
    }
  }
}

TEST(CudnnWhole, RowsWithoutKeysAndKeysWithoutQueries) {
  Case c = make_case(400, 420, 64, 64);
  c.tiles = {make_placed(10, 150, 5, 140, {-kUnbounded, -30}),
             make_placed(170, 100, 150, 200, kCausal), make_placed(280, 40, 350, 0, kFull),
             make_placed(330, 0, 360, 50, kFull)};
  check_whole(c, 1);
}

TEST(CudnnWhole, PacksWithGapsAndEmptySequences) {
  for (const int64_t dim : {72, 64, 128}) {
    for (const Band& band : {kFull, kCausal, Band{-20, 15}}) {
      Case c = make_case(700, 760, dim, dim);
      int64_t q = 3;
      int64_t k = 8;
      for (const auto& [nq, nk] :
           {std::pair{70, 70}, {0, 40}, {130, 130}, {5, 0}, {1, 90}, {300, 310}, {64, 64}}) {
        c.tiles.push_back(make_placed(q, nq, k, nk, band));
        q += nq + 7;
        k += nk + 5;
      }
      check_whole(c, static_cast<uint64_t>(dim), 1.35);
    }
  }
}

TEST(CudnnWhole, EqualSequencesWithGaps) {
  Case c = make_case(500, 500, 64, 64);
  for (int64_t i = 0; i < 3; ++i) {
    c.tiles.push_back(make_placed(160 * i, 150, 160 * i, 150, kCausal));
  }
  check_whole(c, 3);
}

TEST(CudnnWhole, StridesAndScalesOfEveryKind) {
  for (const int64_t gap : {0, 1, 8}) {
    for (const Memory order : {Memory::kTokenMajor, Memory::kHeadMajor}) {
      for (const double scale : {0.11, 0.0, -0.11}) {
        Case c = make_case(400, 400, 64, 64);
        c.gap = gap;
        c.memory = order;
        c.batch = 2;
        c.scale = scale;
        c.tiles = {make_placed(0, 150, 0, 150, kCausal), make_placed(150, 150, 150, 150, kCausal),
                   make_placed(310, 80, 305, 95, kFull)};
        check_whole(c, 70);
      }
    }
  }
}

TEST(CudnnWhole, HeadsThatNoQueryReads) {
  Case c = make_case(201, 170, 64, 64);
  c.problem.heads_kv = 3;
  c.tiles = {make_placed(10, 181, 20, 149, kCausal)};
  check_whole(c, 4);
}

}  // namespace
}  // namespace longspan::testing
