// What the provider adds to the kernels that it runs: whole calls and bare entries of one build, on
// the same operands, timed in pairs.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/cudnn/paired.h"
#include "gpu/prepared/scene.h"
#include "providers/lane.h"
#include "providers/prepared/layout.h"
#include "providers/prepared/prepared.h"
#include "providers/prepared/scratch.h"
#include "providers/prepared/store.h"

namespace longspan::testing {
namespace {

using prepared::Builds;
using prepared::Kernel;
using prepared::Launch;
using prepared::Name;
using prepared::Operand;
using prepared::Values;

constexpr double kMost = 1.02;  // a call's time by that of its entries

/// One causal sequence, bf16, whole results.
struct Size {
  int64_t dim, heads_q, heads_kv, tokens;
};

TileProblem problem_of(const Size& s, Direction direction) {
  TileProblem p{.direction = direction,
                .dtype = DType::kBF16,
                .heads_q = s.heads_q,
                .heads_kv = s.heads_kv,
                .group = s.heads_q / s.heads_kv,
                .dim_qk = s.dim,
                .dim_v = s.dim,
                .capacity_q = s.tokens,
                .capacity_k = s.tokens};
  p.features.whole = true;
  return p;
}

/// Values between 0.5 and 2 of both signs.
cuda::Memory some_rows(int64_t elements, uint32_t seed) {
  std::vector<uint16_t> rows(static_cast<size_t>(elements));
  for (uint16_t& row : rows) {
    seed = seed * 1664525 + 1013904223;
    row = static_cast<uint16_t>(0x3f00 | (seed >> 16 & 0x80ff));
  }
  return must(cuda::Memory::copy_of(rows.data(), rows.size() * sizeof(uint16_t)));
}

/// The tensors of a call on the device.
class Tensors {
 public:
  explicit Tensors(const Size& s) {
    uint32_t seed = 0;
    for (const Name n : {Name::kQ, Name::kO, Name::kDout, Name::kDq}) add(n, s, s.heads_q, ++seed);
    for (const Name n : {Name::kK, Name::kV, Name::kDk, Name::kDv}) add(n, s, s.heads_kv, ++seed);
    lse_ = must(cuda::Memory::make(static_cast<size_t>(s.tokens * s.heads_q) * sizeof(float)));
    views_[Name::kLse] = packed_view(lse_.data(), DType::kF32, s.tokens, s.heads_q, 1);
  }
  const TensorView& operator[](Name n) const { return views_.at(n); }

 private:
  void add(Name n, const Size& s, int64_t heads, uint32_t seed) {
    memory_.push_back(some_rows(s.tokens * heads * s.dim, seed));
    views_[n] = packed_view(memory_.back().data(), DType::kBF16, s.tokens, heads, s.dim);
  }

  std::vector<cuda::Memory> memory_;
  cuda::Memory lse_;
  std::map<Name, TensorView> views_;
};

/// The provider's call.
class Whole {
 public:
  Whole(const Size& s, Direction direction, const Tensors& t, Stream stream)
      : tiles_{make_placed(0, s.tokens, 0, s.tokens, {-kUnbounded, 0})},
        direction_(direction),
        plan_(must(kPrepared.prepare(problem_of(s, direction), lane_device(1)))),
        staged_(must(plan_->stage(tiles_))),
        workspace_(must(cuda::Memory::make(plan_->workspace_bytes()))),
        forward_{.q = t[Name::kQ],
                 .k = t[Name::kK],
                 .v = t[Name::kV],
                 .o = t[Name::kO],
                 .lse = t[Name::kLse],
                 .tiles = tiles_,
                 .scale = 0.05,
                 .stream = stream,
                 .staged = staged_.get()},
        backward_{.q = t[Name::kQ],
                  .k = t[Name::kK],
                  .v = t[Name::kV],
                  .dout = t[Name::kDout],
                  .lse = t[Name::kLse],
                  .o = t[Name::kO],
                  .dq = t[Name::kDq],
                  .dk = t[Name::kDk],
                  .dv = t[Name::kDv],
                  .tiles = tiles_,
                  .scale = 0.05,
                  .stream = stream,
                  .staged = staged_.get()} {}
  void operator()() const {
    const Workspace workspace{workspace_.data(), plan_->workspace_bytes()};
    const bool forward = direction_ == Direction::kForward;
    must(forward ? plan_->forward(forward_, workspace) : plan_->backward(backward_, workspace));
  }

 private:
  std::vector<PlacedTile> tiles_;
  Direction direction_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Staged> staged_;
  cuda::Memory workspace_;
  ForwardTiles forward_;
  BackwardTiles backward_;
};

/// The build's entries by themselves, with the clearing that they expect.
class Entries {
 public:
  Entries(const Size& s, Direction direction, const Tensors& t, Stream stream)
      : problem_(problem_of(s, direction)), builds_(builds_of(problem_)), launch_(launch_of(s)) {
    values_.scale = 0.05;
    values_.sizes = {1, s.heads_q, s.heads_kv, s.tokens, s.tokens, 0};
    values_.tokens_q = kernel().manifest().serves.tokens_q;
    values_.stream = stream;
    for (const Name n : {Name::kQ, Name::kO, Name::kDout, Name::kDq}) place(n, t, false);
    for (const Name n : {Name::kK, Name::kV, Name::kDk, Name::kDv}) place(n, t, true);
    values_[Name::kLse] = prepared::statistics_in_place(t[Name::kLse], launch_).value();
    for (const prepared::Buffer& b : kernel().manifest().buffers) place(b);
  }
  void operator()() const {
    for (const prepared::Buffer& b : kernel().manifest().buffers) {
      const Operand& o = values_[b.name];
      if (b.cleared) must(cuda::fill_on_device(o.data, 0, bytes_of(o), values_.stream));
    }
    must(kernel().run(values_));
  }
  std::string name() const { return kernel().manifest().name; }

 private:
  static Builds builds_of(const TileProblem& p) {
    auto found = prepared::choose(p, *prepared::store());
    if (const auto* decline = std::get_if<Decline>(&found))
      throw std::runtime_error(decline->detail);
    return std::get<Builds>(std::move(found));
  }
  const Kernel& kernel() const { return *launch_.kernel; }
  Launch launch_of(const Size& s) const {
    const Kernel* const kernel =
        builds_.find({prepared::Shape::kCausal, false, s.tokens, s.tokens});
    return {kernel, {prepared::Shape::kCausal}, false, {{.nq = s.tokens, .nk = s.tokens}}};
  }
  void place(Name n, const Tensors& t, bool keys) {
    const TensorView& view = t[n];
    values_[n] =
        prepared::in_place(view, launch_, {.keys = keys, .heads = view.heads, .dim = view.dim})
            .value();
  }
  void place(const prepared::Buffer& b) {
    Operand o = buffer_operand(b, kernel().manifest(), problem_, launch_);
    o.data = room(bytes_of(o));
    values_[b.name] = o;
  }
  void* room(size_t bytes) {
    memory_.push_back(must(cuda::Memory::make(bytes)));
    must(cuda::fill(memory_.back().data(), 0, bytes));
    return memory_.back().data();
  }

  TileProblem problem_;
  Builds builds_;
  Launch launch_;
  std::vector<cuda::Memory> memory_;
  Values values_;
};

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

void expect_no_slower(const Size& size, Direction direction) {
  const auto stream = must(cuda::OwnedStream::make());
  const Tensors tensors(size);
  const Whole forward(size, Direction::kForward, tensors, stream.get());
  forward();  // O and LSE for backward
  const Whole whole(size, direction, tensors, stream.get());
  const Entries entries(size, direction, tensors, stream.get());
  const Paired p = paired([&] { whole(); }, [&] { entries(); }, native(stream.get()));
  std::printf("%s, %ld tokens: call %.1f us, entries %.1f us, ratio %.4f\n", entries.name().c_str(),
              static_cast<long>(size.tokens), p.median_us, p.direct_us, p.ratio);
  EXPECT_LE(p.ratio, kMost) << entries.name();
}

TEST(PreparedRates, CallsTakeTheTimeOfTheirEntries) {
  for (const Size& size : {Size{128, 32, 8, 8192}, {64, 32, 16, 8192}, {256, 16, 8, 8192}}) {
    expect_no_slower(size, Direction::kForward);
    expect_no_slower(size, Direction::kBackward);
  }
  expect_no_slower({512, 16, 8, 4096}, Direction::kForward);
}

TEST(PreparedRates, AForwardCostsTheHostSevenMicrosecondsAtMost) {
  const Size size{128, 4, 2, 256};
  const auto stream = must(cuda::OwnedStream::make());
  const Tensors tensors(size);
  const Whole forward(size, Direction::kForward, tensors, stream.get());
  const Whole backward(size, Direction::kBackward, tensors, stream.get());
  const Entries entries(size, Direction::kForward, tensors, stream.get());
  const double call = host_time([&] { forward(); }, native(stream.get()));
  const double entry = host_time([&] { entries(); }, native(stream.get()));
  const double other = host_time([&] { backward(); }, native(stream.get()));
  std::printf("host: forward %.2f us (its entry %.2f us), backward %.2f us\n", call, entry, other);
  EXPECT_LE(call, 7);
}

}  // namespace
}  // namespace longspan::testing
