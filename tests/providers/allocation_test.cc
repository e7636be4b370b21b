// Calls of a prepared plan do not touch the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace {
std::atomic<int64_t> allocations{0};

void* allocate(size_t bytes, size_t alignment) {
  ++allocations;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace longspan::testing {
namespace {

Case packed_case() {
  Case c;
  c.problem = {.heads_q = 4,
               .heads_kv = 2,
               .group = 2,
               .dim_qk = 40,
               .dim_v = 24,
               .capacity_q = 800,
               .capacity_k = 800};
  c.scale = 0.2;
  for (int64_t i = 0; i < 20; ++i) {
    c.tiles.push_back(make_placed(40 * i, 33, 40 * i, 37, {-kUnbounded, 4}));
  }
  c.tiles.push_back(make_placed(0, 300, 0, 300, {}));
  return c;
}

void check_calls(const Provider& provider, Scene& scene, const Device& cpu) {
  Case& c = scene.c;
  const DType wide = accumulator(c.problem.dtype);
  Carry carry = empty_carry(c, wide);
  Gradients g = zero_gradients(c, wide);
  const Tensor delta = make_delta(c, scene.in, carry.o, wide);
  Tensor largest({.dtype = wide, .rows = 1, .heads = scene.slopes.shape().heads});
  Tensor dbias = make_bias(scene, wide);
  c.problem.direction = Direction::kForward;
  const auto forward = provider.prepare(c.problem, cpu).value();
  c.problem.direction = Direction::kBackward;
  const auto backward = provider.prepare(c.problem, cpu).value();
  const size_t bytes = std::max(forward->workspace_bytes(), backward->workspace_bytes());
  const Workspace workspace{::operator new (bytes, std::align_val_t{64}), bytes};
  const Features& features = c.problem.features;
  const ForwardTiles f{.q = scene.in.q.view(),
                       .k = scene.in.k.view(),
                       .v = scene.in.v.view(),
                       .o = carry.o.view(),
                       .lse = carry.lse.view(),
                       .tiles = c.tiles,
                       .scale = c.scale,
                       .terms = c.terms,
                       .max_logit = features.max_logit ? largest.view() : TensorView{}};
  const BackwardTiles b{.q = f.q,
                        .k = f.k,
                        .v = f.v,
                        .dout = scene.in.dout.view(),
                        .lse = carry.lse.view(),
                        .delta = delta.view(),
                        .dq = g.dq.view(),
                        .dk = g.dk.view(),
                        .dv = g.dv.view(),
                        .tiles = c.tiles,
                        .scale = c.scale,
                        .terms = c.terms,
                        .dbias = features.bias != Bias::kNone ? dbias.view() : TensorView{}};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const int64_t before = allocations;
    EXPECT_TRUE(forward->forward(f, workspace).ok());
    EXPECT_TRUE(backward->backward(b, workspace).ok());
    EXPECT_EQ(allocations, before) << provider.name() << " " << scene.text();
  }
  ::operator delete (workspace.data, std::align_val_t{64});
}

constexpr Terms all_terms(Bias bias) {
  return {.softcap = true,
          .alibi = true,
          .bias = bias,
          .dropout = true,
          .score = true,
          .visible = true,
          .max_logit = true};
}

TEST(Allocation, CallsDoNotAllocate) {
  const Device cpu = device(3);
  const Terms kinds[] = {{}, all_terms(Bias::k111S)};
  for (const Provider* provider : lane_providers()) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const Terms& terms : kinds) {
        Case c = packed_case();
        c.problem.dtype = dtype;
        Scene scene = make_scene(std::move(c), terms, 1);
        check_calls(*provider, scene, cpu);
      }
    }
  }
}

TEST(Allocation, TheCounterCounts) {
  const int64_t before = allocations;
  std::vector<int> values(100);
  EXPECT_GT(allocations, before);
}

TEST(Allocation, ScratchDoesNotGrowWithTheSequence) {
  Case c = packed_case();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    c.problem.direction = direction;
    for (const int64_t dim : {1, 64, 128, 576}) {
      c.problem.dim_qk = c.problem.dim_v = dim;
      const Device two = device(2);
      c.problem.capacity_q = c.problem.capacity_k = 1;
      const size_t small = tiled().prepare(c.problem, two).value()->workspace_bytes();
      c.problem.capacity_q = c.problem.capacity_k = int64_t{1} << 31;
      EXPECT_EQ(tiled().prepare(c.problem, two).value()->workspace_bytes(), small);
      EXPECT_LE(small, size_t{2} * 3 * 1024 * 1024);
      TileProblem all = c.problem;
      all.features = {.softcap = true, .bias = Bias::k111S, .dropout = true, .modification = "all"};
      EXPECT_LE(tiled().prepare(all, two).value()->workspace_bytes(),
                small + 2 * (4 * 128 * 128 + 256) * sizeof(float));
    }
  }
}

}  // namespace
}  // namespace longspan::testing
