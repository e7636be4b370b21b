// The provider cudnn, whole results, against the same attention asked of cuDNN directly: paired
// times of eager calls and of graph replays, and host time per call. JSON lines on standard output.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "cuda/runtime.h"
#include "gpu/cudnn/direct_graph.h"
#include "gpu/cudnn/paired.h"
#include "longspan/provider.h"
#include "providers/cudnn/cudnn.h"

namespace longspan::testing {
namespace {

/// 2^18 bf16 normals.
std::vector<uint16_t> make_period() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> draw(0, 1);
  std::vector<uint16_t> period(size_t{1} << 18);
  for (uint16_t& x : period) x = float_to_bf16(draw(random));
  return period;
}

/// Normals from place `seed` of a period on, repeated.
cuda::Memory normal(int64_t count, size_t seed) {
  static const std::vector<uint16_t> period = make_period();
  cuda::Memory memory = must(cuda::Memory::make(static_cast<size_t>(count) * sizeof(uint16_t)));
  auto* const to = static_cast<uint16_t*>(memory.data());
  const size_t all = static_cast<size_t>(count);
  for (size_t done = 0; done < all;) {
    const size_t from = done == 0 ? seed * 1001 : 0;
    const size_t part = std::min(period.size() - from, all - done);
    must(cuda::copy(to + done, period.data() + from, part * sizeof(uint16_t)));
    done += part;
  }
  return memory;
}

/// The tensors of one problem and both arms on them.
class Attention {
 public:
  explicit Attention(const DirectShape& shape)
      : shape_(shape), scale_(1 / std::sqrt(static_cast<double>(shape.dim_qk))) {
    const auto tensor = [&](int64_t heads, int64_t dim, uint64_t seed) {
      memory_.push_back(normal(shape.rows * heads * dim, seed));
      return packed_view(memory_.back().data(), DType::kBF16, shape.rows, heads, dim);
    };
    q_ = tensor(shape.heads_q, shape.dim_qk, 1);
    k_ = tensor(shape.heads_kv, shape.dim_qk, 2);
    v_ = tensor(shape.heads_kv, shape.dim_v, 3);
    dout_ = tensor(shape.heads_q, shape.dim_v, 4);
    o_ = tensor(shape.heads_q, shape.dim_v, 5);
    dq_ = tensor(shape.heads_q, shape.dim_qk, 6);
    dk_ = tensor(shape.heads_kv, shape.dim_qk, 7);
    dv_ = tensor(shape.heads_kv, shape.dim_v, 8);
    const int64_t rows = shape.rows * shape.heads_q;
    memory_.push_back(must(cuda::Memory::make(static_cast<size_t>(rows) * sizeof(float))));
    lse_ = packed_view(memory_.back().data(), DType::kF32, shape.rows, shape.heads_q, 1);
    const Band band = shape.causal ? Band{-kUnbounded, 0} : Band{};
    tiles_ = {{.tile = {.q = {0, shape.rows, 1}, .k = {0, shape.rows, 1}, .band = band}}};
    const Prepared forward = prepare(Direction::kForward);
    prepared_ = prepare(shape.direction);
    direct_ = make_direct_graph(shape, scale_);
    const size_t bytes = std::max({forward.plan->workspace_bytes(),
                                   prepared_.plan->workspace_bytes(), direct_->workspace_bytes()});
    memory_.push_back(must(cuda::Memory::make(bytes)));
    workspace_ = {memory_.back().data(), bytes};
    attend(forward);  // backward reads O and LSE
    must(cuda::synchronize(stream_.get()));
  }

  void provider() {
    shape_.direction == Direction::kForward ? attend(prepared_) : attend_backward();
  }
  void direct() {
    direct_->execute(
        {q_.data, k_.data, v_.data, o_.data, lse_.data, dout_.data, dq_.data, dk_.data, dv_.data},
        workspace_.data, stream_.get());
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.get().handle); }

 private:
  struct Prepared {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Staged> staged;
  };

  Prepared prepare(Direction direction) const {
    TileProblem problem{.direction = direction,
                        .dtype = DType::kBF16,
                        .heads_q = shape_.heads_q,
                        .heads_kv = shape_.heads_kv,
                        .group = shape_.heads_q / shape_.heads_kv,
                        .dim_qk = shape_.dim_qk,
                        .dim_v = shape_.dim_v,
                        .capacity_q = shape_.rows,
                        .capacity_k = shape_.rows};
    problem.features.whole = true;
    auto plan = must(kCudnn.prepare(problem, must(cuda_device(0))));
    auto staged = must(plan->stage(tiles_));
    return {std::move(plan), std::move(staged)};
  }

  void attend(const Prepared& forward) {
    must(forward.plan->forward({.q = q_,
                                .k = k_,
                                .v = v_,
                                .o = o_,
                                .lse = lse_,
                                .tiles = tiles_,
                                .scale = scale_,
                                .stream = stream_.get(),
                                .staged = forward.staged.get()},
                               workspace_));
  }
  void attend_backward() {
    must(prepared_.plan->backward({.q = q_,
                                   .k = k_,
                                   .v = v_,
                                   .dout = dout_,
                                   .lse = lse_,
                                   .o = o_,
                                   .dq = dq_,
                                   .dk = dk_,
                                   .dv = dv_,
                                   .tiles = tiles_,
                                   .scale = scale_,
                                   .stream = stream_.get(),
                                   .staged = prepared_.staged.get()},
                                  workspace_));
  }

  DirectShape shape_;
  double scale_;
  std::vector<cuda::Memory> memory_;
  TensorView q_, k_, v_, o_, lse_, dout_, dq_, dk_, dv_;
  std::vector<PlacedTile> tiles_;
  Prepared prepared_;
  std::unique_ptr<DirectGraph> direct_;
  Workspace workspace_;
  cuda::OwnedStream stream_ = must(cuda::OwnedStream::make());
};

void print(const DirectShape& s, const char* mode, const Paired& p, double host, double direct) {
  fmt::print(R"({{"problem":"dtype=bf16 heads={}/{} dim={}{} lengths={} mask={}","direction":"{}",)"
             R"("mode":"{}","arm":"cudnn","median_us":{:.2f},"direct_us":{:.2f},)"
             R"("ratio_to":{{"cudnn_direct":{:.4f}}},"wins":{{"cudnn_direct":"{}/{}"}},)"
             R"("host_us":{:.2f},"direct_host_us":{:.2f}}})"
             "\n",
             s.heads_q, s.heads_kv, s.dim_qk,
             s.dim_v == s.dim_qk ? std::string() : fmt::format(" dim_v={}", s.dim_v), s.rows,
             s.causal ? "causal" : "none",
             s.direction == Direction::kForward ? "forward" : "backward", mode, p.median_us,
             p.direct_us, p.ratio, p.wins, p.pairs, host, direct);
  std::fflush(stdout);
}

void measure(const DirectShape& shape) {
  Attention attention(shape);
  const Call ours = [&] { attention.provider(); };
  const Call direct = [&] { attention.direct(); };
  const Paired eager = paired(ours, direct, attention.stream());
  const double direct_host = host_time(direct, attention.stream());
  print(shape, "eager", eager, host_time(ours, attention.stream()), direct_host);
  const Replay our_graph(ours, attention.stream());
  const Replay direct_graph(direct, attention.stream());
  const Call replay = [&] { our_graph(); };
  const Call direct_replay = [&] { direct_graph(); };
  const Paired replayed = paired(replay, direct_replay, attention.stream());
  const double replay_host = host_time(direct_replay, attention.stream());
  print(shape, "graph", replayed, host_time(replay, attention.stream()), replay_host);
}

int main_of(int64_t longest) {
  const DirectShape heads[] = {
      {.heads_q = 32, .heads_kv = 8, .dim_qk = 64, .dim_v = 64},
      {.heads_q = 32, .heads_kv = 8, .dim_qk = 128, .dim_v = 128},
      {.heads_q = 16, .heads_kv = 16, .dim_qk = 192, .dim_v = 128},
      {.heads_q = 16, .heads_kv = 8, .dim_qk = 256, .dim_v = 256},
  };
  for (int64_t rows = 2048; rows <= longest; rows *= 2) {
    for (const bool causal : {true, false}) {
      for (DirectShape shape : heads) {
        for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
          shape.rows = rows;
          shape.causal = causal;
          shape.direction = direction;
          measure(shape);
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace longspan::testing

/// cudnn_direct [LONGEST]: sequence lengths from 2048, doubled up to LONGEST (32768).
int main(int argc, char** argv) {
  try {
    return longspan::testing::main_of(argc > 1 ? std::atoll(argv[1]) : 32768);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cudnn_direct: {}\n", error.what());
    return 1;
  }
}
