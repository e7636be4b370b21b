// What score terms, dropout and windows cost in cpu/tiled: f32, D 128, causal, on all cores.
//
//   bench_cpu_terms [--rounds=N]
//
// A round measures a plain call and the same with one term, one after the other; the table gives
// medians of their ratios, so that other load on the machine hits both sides.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention.h"
#include "longspan/problem.h"

namespace {

using longspan::Bias;
using longspan::Device;
using longspan::Direction;
using longspan::Modification;
using longspan::ScoreIndex;
using longspan::bench::Attention;
using longspan::bench::median;
using longspan::bench::normal;
using longspan::bench::seconds;
using longspan::bench::Shape;

constexpr int64_t kRows = 2048;
constexpr int64_t kHeads = 4;
constexpr int64_t kDim = 128;

/// A problem with one term, and the tensors of all.
class Term {
 public:
  Term(const Device& device, std::string name, const longspan::Features& features)
      : name_(std::move(name)),
        attention_(device, {.rows = kRows, .heads = kHeads, .dim = kDim, .features = features}) {
    longspan::ScoreTerms& terms = attention_.terms;
    if (features.softcap) terms.softcap = 30;
    if (features.alibi) terms.slopes = per_head(slopes_);
    if (features.dropout) terms.dropout = {.probability = 0.1, .seed = 1};
    if (features.max_logit) attention_.max_logit = per_head(max_logit_);
    if (features.modification) terms.modification = &modification_;
    if (features.bias == Bias::kNone) return;
    const int64_t queries = features.bias == Bias::k111S ? 1 : kRows;
    bias_ = normal(queries * heads(features.bias) * kRows, 7);
    dbias_.resize(bias_.size());
    terms.bias = bias_view(bias_, queries, heads(features.bias));
    attention_.dbias = bias_view(dbias_, queries, heads(features.bias));
  }

  const std::string& name() const { return name_; }
  Attention& attention() { return attention_; }
  Modification& modification() { return modification_; }

 private:
  static int64_t heads(Bias bias) { return bias == Bias::kBH ? kHeads : 1; }
  static longspan::TensorView per_head(std::vector<float>& values) {
    return longspan::packed_view(values.data(), longspan::DType::kF32, 1, kHeads, 1);
  }
  /// Memory [head][query][key].
  static longspan::TensorView bias_view(std::vector<float>& values, int64_t queries,
                                        int64_t heads) {
    longspan::TensorView view =
        longspan::packed_view(values.data(), longspan::DType::kF32, queries, heads, kRows);
    view.stride_seq = kRows;
    view.stride_head = queries * kRows;
    return view;
  }

  std::string name_;
  std::vector<float> slopes_ = std::vector<float>(kHeads, 0.01F);
  std::vector<float> max_logit_ = std::vector<float>(kHeads);
  std::vector<float> bias_, dbias_;
  Modification modification_ = {.key = "bench"};
  Attention attention_;
};

std::vector<std::unique_ptr<Term>> make_terms(const Device& device) {
  std::vector<std::unique_ptr<Term>> terms;
  const auto add = [&](std::string name, const longspan::Features& features) -> Term& {
    terms.push_back(std::make_unique<Term>(device, std::move(name), features));
    return *terms.back();
  };
  add("none", {});
  add("max_logit", {.max_logit = true});
  add("alibi", {.alibi = true});
  add("softcap", {.softcap = true});
  add("bias=1,1", {.bias = Bias::k11});
  add("bias=b,h", {.bias = Bias::kBH});
  add("bias=1,1,1,s", {.bias = Bias::k111S});
  add("dropout", {.dropout = true});
  add("alibi softcap bias dropout",
      {.softcap = true, .alibi = true, .bias = Bias::kBH, .dropout = true});
  add("callback visible", {.modification = "bench"}).modification().visible =
      [](const ScoreIndex& at) { return at.k % 64 != 5; };
  Modification& score = add("callback score", {.modification = "bench"}).modification();
  score.score = [](double value, const ScoreIndex&) { return 0.5 * value; };
  score.derivative = [](double, const ScoreIndex&) { return 0.5; };
  return terms;
}

constexpr std::array<Direction, 2> kDirections = {Direction::kForward, Direction::kBackward};

using Ratios = std::array<std::vector<double>, 2>;

/// Adds one round of both directions: time of `one` over that of `base`.
bool measure(Attention& base, Attention& one, Ratios& ratios) {
  bool ok = true;
  for (size_t i = 0; i < kDirections.size(); ++i) {
    const double plain = seconds([&] { ok &= base.run(kDirections[i]); });
    const double here = seconds([&] { ok &= one.run(kDirections[i]); });
    ratios[i].push_back(here / plain);
  }
  return ok;
}

void print(std::string_view name, const Ratios& ratios, double divisor) {
  fmt::print("{:<28}{:>10.3f}{:>10.3f}\n", name, median(ratios[0]) / divisor,
             median(ratios[1]) / divisor);
}

bool print_terms(const Device& device, int rounds) {
  const std::vector<std::unique_ptr<Term>> terms = make_terms(device);
  Attention plain(device, {.rows = kRows, .heads = kHeads, .dim = kDim});
  std::vector<Ratios> ratios(terms.size());
  bool ok = true;
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    for (size_t i = 0; i < terms.size(); ++i) {
      Ratios warm;
      ok &= measure(plain, terms[i]->attention(), round < 0 ? warm : ratios[i]);
    }
  }
  fmt::print("\nf32, dim {}, {} tokens, {} heads, causal, {} threads: time / plain time\n", kDim,
             kRows, kHeads, device.threads);
  fmt::print("{:<28}{:>10}{:>10}\n", "", "forward", "backward");
  for (size_t i = 0; i < terms.size(); ++i) print(terms[i]->name(), ratios[i], 1);
  return ok;
}

/// Window and full causal mask by the pairs of the blocks that they touch.
bool print_window(const Device& device, int rounds) {
  constexpr int64_t kTokens = 16384;
  constexpr int64_t kWindow = 1024;
  constexpr int64_t kBlock = 128;  // of cpu/tiled at this dim
  const Shape shape = {.rows = kTokens, .heads = 2, .dim = kDim};
  Shape windowed = shape;
  windowed.band.lo = -kWindow;
  Attention full(device, shape);
  Attention window(device, windowed);
  Ratios ratios;
  bool ok = true;
  for (int round = 0; round < rounds; ++round) ok &= measure(full, window, ratios);
  constexpr int64_t kBlocks = kTokens / kBlock;
  constexpr int64_t kBefore = kWindow / kBlock;
  const double causal = kBlocks * (kBlocks + 1) / 2.0;
  const double touched = kBlocks * (kBefore + 1) - kBefore * (kBefore + 1) / 2.0;
  fmt::print("\n{} tokens, 2 heads, window={},0: time / that of the causal mask\n", kTokens,
             kWindow);
  fmt::print("{:<28}{:>10}{:>10}\n", "", "forward", "backward");
  print("whole call", ratios, 1);
  print("per touched block", ratios, touched / causal);
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9;
  constexpr std::string_view kRounds = "--rounds=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kRounds)) {
      fmt::print(stderr, "unknown flag {}: only --rounds=N\n", argument);
      return 2;
    }
    rounds = std::max(1, std::atoi(argv[i] + kRounds.size()));
  }
  const Device device = longspan::cpu_device();
  if (print_terms(device, rounds) && print_window(device, rounds)) return 0;
  fmt::print(stderr, "a call failed\n");
  return 1;
}
