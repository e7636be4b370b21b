// cpu/tiled against a plain matrix product on all cores, in one run: f32, D 128, S 4096, causal.
//
//   bench_cpu_attention [--rounds=N] [google-benchmark flags]
//
// A round measures sgemm, forward and backward one after the other, and ratios are taken inside a
// round, so that other load on the machine hits both sides. The table gives their medians.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "attention.h"
#include "longspan/provider.h"

namespace {

using longspan::Direction;
using longspan::bench::Attention;
using longspan::bench::median;
using longspan::bench::normal;
using longspan::bench::seconds;

constexpr int64_t kRows = 4096;
constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 128;

/// OpenBLAS with threads of its own, loaded at run time.
class Sgemm {
 public:
  static constexpr int kSize = 4096;

  Sgemm() : a_(normal(kSize * kSize, 1)), b_(normal(kSize * kSize, 2)), c_(kSize * kSize) {
    for (const char* path :
         {"/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0", "libopenblas.so.0"}) {
      library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) break;
    }
    if (library_ != nullptr) call_ = reinterpret_cast<Call>(dlsym(library_, "sgemm_"));
  }

  bool available() const { return call_ != nullptr; }
  static double flops() { return 2.0 * kSize * kSize * kSize; }

  std::string kernels() const {
    const auto name = reinterpret_cast<char* (*)()>(dlsym(library_, "openblas_get_corename"));
    return name == nullptr ? "unknown" : name();
  }

  void set_threads(int threads) const {
    const auto set = reinterpret_cast<void (*)(int)>(dlsym(library_, "openblas_set_num_threads"));
    if (set != nullptr) set(threads);
  }

  void run() {
    const int n = kSize;
    const float one = 1;
    const float zero = 0;
    call_("N", "N", &n, &n, &n, &one, a_.data(), &n, b_.data(), &n, &zero, c_.data(), &n);
  }

 private:
  using Call = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                        const float*, const int*, const float*, const int*, const float*, float*,
                        const int*);
  std::vector<float> a_, b_, c_;
  void* library_ = nullptr;
  Call call_ = nullptr;
};

/// Rates in GFLOP/s of every round.
struct Rates {
  std::vector<double> sgemm, forward, backward;
};

/// Round by round.
std::vector<double> percents(const std::vector<double>& rates, const std::vector<double>& base) {
  std::vector<double> percent;
  for (size_t i = 0; i < rates.size(); ++i) percent.push_back(100 * rates[i] / base[i]);
  return percent;
}

void print_row(std::string_view name, const std::vector<double>& rates,
               const std::vector<double>& base, double target) {
  const std::vector<double> percent = percents(rates, base);
  const auto [low, high] = std::minmax_element(percent.begin(), percent.end());
  fmt::print("{:<24}{:>10.1f}{:>12.1f}{:>16}{:>10}\n", name, median(rates), median(percent),
             fmt::format("{:.1f}..{:.1f}", *low, *high),
             target > 0 ? fmt::format("{:.0f}", target) : "-");
}

void print_table(const Rates& rates) {
  fmt::print("\nf32, dim {}, {} tokens, {} heads, causal: counted FLOPs\n", kDim, kRows, kHeads);
  fmt::print("{:<24}{:>10}{:>12}{:>16}{:>10}\n", "", "GFLOP/s", "% of sgemm", "range", "target %");
  print_row("OpenBLAS sgemm 4096^3", rates.sgemm, rates.sgemm, 0);
  print_row("cpu/tiled forward", rates.forward, rates.sgemm, 60);
  print_row("cpu/tiled backward", rates.backward, rates.sgemm, 50);
}

/// One iteration is one round; rates and percentages appear as counters.
void paired(benchmark::State& state, Sgemm& sgemm, Attention& attention, Rates& rates) {
  bool ok = attention.run(Direction::kForward) && attention.run(Direction::kBackward);
  sgemm.run();
  for (auto _ : state) {
    const double gemm = seconds([&] { sgemm.run(); });
    const double forward = seconds([&] { ok &= attention.run(Direction::kForward); });
    const double backward = seconds([&] { ok &= attention.run(Direction::kBackward); });
    rates.sgemm.push_back(Sgemm::flops() / gemm / 1e9);
    rates.forward.push_back(attention.flops(Direction::kForward) / forward / 1e9);
    rates.backward.push_back(attention.flops(Direction::kBackward) / backward / 1e9);
  }
  if (!ok) state.SkipWithError("a call failed");
  state.counters["sgemm_gflops"] = median(rates.sgemm);
  state.counters["forward_gflops"] = median(rates.forward);
  state.counters["backward_gflops"] = median(rates.backward);
  state.counters["forward_percent"] = median(percents(rates.forward, rates.sgemm));
  state.counters["backward_percent"] = median(percents(rates.backward, rates.sgemm));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  int rounds = 9;
  constexpr std::string_view kRounds = "--rounds=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kRounds)) {
      fmt::print(stderr, "unknown flag {}\n", argument);
      return 2;
    }
    rounds = std::max(1, std::atoi(argv[i] + kRounds.size()));
  }
  Sgemm sgemm;
  if (!sgemm.available()) {
    fmt::print(stderr, "OpenBLAS not found: install libopenblas0-pthread\n");
    return 2;
  }
  const longspan::Device device = longspan::cpu_device();
  sgemm.set_threads(device.threads);
  Attention attention(device, {.rows = kRows, .heads = kHeads, .dim = kDim});
  Rates rates;
  benchmark::RegisterBenchmark(
      "paired", [&](benchmark::State& state) { paired(state, sgemm, attention, rates); })
      ->Iterations(rounds)
      ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n{} threads, OpenBLAS kernels {}\n", device.threads, sgemm.kernels());
  if (!rates.sgemm.empty()) print_table(rates);
  return 0;
}
