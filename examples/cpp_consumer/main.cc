// Causal attention, forward and backward, of one sequence over three ranks of this process.
//
// Each rank holds its own tokens only. Two properties of exact attention are checked at the end:
// a query's weights sum to 1, so the gradients of v sum to those of the output; and the gradients
// of q and k stem from the same scores, so sum(q dq) equals sum(k dk).

#include <longspan/longspan.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 3;
// 301 tokens over 3 ranks: nothing has to divide.
constexpr const char* kProblem = "dtype=f32 heads=4/2 dim=32 lengths=301 mask=causal";

/// Memory aligned as a workspace has to be.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : storage_(bytes + longspan::kWorkspaceAlignment), bytes_(bytes) {}

  longspan::Workspace workspace() {
    void* data = storage_.data();
    size_t space = storage_.size();
    std::align(longspan::kWorkspaceAlignment, bytes_, data, space);
    return {data, bytes_};
  }

 private:
  std::vector<std::byte> storage_;
  size_t bytes_;
};

/// A rank's share of a tensor, in its own local row order.
struct Tensor {
  int64_t rows, heads, dim;
  std::vector<float> values = std::vector<float>(static_cast<size_t>(rows * heads * dim));

  longspan::TensorView view() {
    return longspan::packed_view(values.data(), longspan::DType::kF32, rows, heads, dim);
  }
  void draw(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
  }
};

/// What one rank contributes to the sums over all ranks.
struct Sums {
  double output_gradient = 0, v_gradient = 0, q_dq = 0, k_dk = 0;
};

double sum(const Tensor& a) {
  double total = 0;
  for (const float value : a.values) total += value;
  return total;
}

double dot(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (size_t i = 0; i < a.values.size(); ++i) total += double{a.values[i]} * double{b.values[i]};
  return total;
}

longspan::Result<Sums> attend(std::shared_ptr<longspan::Communicator> communicator,
                              const longspan::Device& device) {
  const int rank = communicator->rank();
  longspan::Options options;
  options.forward.strategy = "ring";
  options.backward.strategy = "ring";
  LONGSPAN_TRY(const longspan::Problem problem, longspan::parse_problem(kProblem));
  LONGSPAN_TRY(auto engine, longspan::Engine::create(options, communicator, device));
  LONGSPAN_TRY(auto call, engine->prepare(problem));

  const int64_t rows = call->partition().q(rank).rows;
  const int64_t rows_kv = call->partition().k(rank).rows;
  Tensor q{rows, problem.heads_q, problem.dim_qk}, k{rows_kv, problem.heads_kv, problem.dim_qk};
  Tensor v{rows_kv, problem.heads_kv, problem.dim_v}, o{rows, problem.heads_q, problem.dim_v};
  Tensor lse{rows, problem.heads_q, 1};
  Tensor dout = o, dq = q, dk = k, dv = v;
  std::mt19937 random(static_cast<unsigned>(rank));
  for (Tensor* tensor : {&q, &k, &v, &dout}) tensor->draw(random);

  // What forward keeps for backward and is no alias of a tensor above is the caller's to allocate.
  std::vector<Scratch> kept;
  for (const longspan::BufferSpec& spec : call->saved_layout()) {
    if (!spec.alias.empty()) continue;
    int64_t bytes = longspan::size_of(spec.dtype);
    for (const int64_t extent : spec.shape) bytes *= extent;
    kept.emplace_back(static_cast<size_t>(bytes));
  }
  longspan::Saved saved;
  for (Scratch& scratch : kept) saved.push_back(scratch.workspace().data);

  longspan::Stream stream;
  Scratch forward(call->workspace_bytes(longspan::Direction::kForward));
  LONGSPAN_CHECK_OK(
      engine->forward(*call, {q.view(), k.view(), v.view(), o.view(), lse.view(), problem.scale},
                      saved, forward.workspace(), stream));
  Scratch backward(call->workspace_bytes(longspan::Direction::kBackward));
  LONGSPAN_CHECK_OK(engine->backward(*call,
                                     {q.view(), k.view(), v.view(), o.view(), lse.view(),
                                      dout.view(), dq.view(), dk.view(), dv.view(), problem.scale},
                                     saved, backward.workspace(), stream));

  std::printf("rank %d: %lld tokens, sent %lld bytes forward and %lld backward\n", rank,
              static_cast<long long>(rows),
              static_cast<long long>(engine->counters().bytes_sent_forward),
              static_cast<long long>(engine->counters().bytes_sent_backward));
  // Query heads of a group share a key head, so both sums run over all heads.
  return Sums{sum(dout), sum(dv), dot(q, dq), dot(k, dk)};
}

bool close(const char* what, double a, double b, double scale) {
  const bool ok = std::abs(a - b) <= 1e-4 * scale;
  std::printf("%s: %.6f and %.6f: %s\n", what, a, b, ok ? "equal" : "DIFFERENT");
  return ok;
}

}  // namespace

int main() {
  std::printf("longspan %s: %s over %d ranks\n", LONGSPAN_VERSION, kProblem, kRanks);
  const auto communicators =
      longspan::make_threads_communicators(longspan::Topology::blocks(kRanks, 1));
  const longspan::Device device = longspan::cpu_device();

  std::vector<std::string> errors(kRanks);
  std::vector<Sums> sums(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<size_t>(rank);
      const longspan::Result<Sums> result = attend(communicators[i], device);
      if (result.ok()) {
        sums[i] = *result;
      } else {
        errors[i] = result.error().text();
        communicators[i]->abandon(result.error());  // so that no peer waits for this rank
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  Sums total;
  for (size_t i = 0; i < kRanks; ++i) {
    if (!errors[i].empty()) {
      std::fprintf(stderr, "rank %zu: %s\n", i, errors[i].c_str());
      return 1;
    }
    total.output_gradient += sums[i].output_gradient;
    total.v_gradient += sums[i].v_gradient;
    total.q_dq += sums[i].q_dq;
    total.k_dk += sums[i].k_dk;
  }
  const bool gradients = close("sum(dout), sum(dv)", total.output_gradient, total.v_gradient,
                               std::abs(total.output_gradient) + 1);
  const bool scores =
      close("sum(q dq), sum(k dk)", total.q_dq, total.k_dk, std::abs(total.q_dq) + 1);
  return gradients && scores ? 0 : 1;
}
