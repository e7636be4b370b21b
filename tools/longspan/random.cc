#include "random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "numbers.h"

namespace longspan::tool {
namespace {

std::mt19937_64 seeded(uint64_t seed, uint32_t stream) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), stream};
  return std::mt19937_64(sequence);
}

/// `normal` stands at the tensor's first value.
void fill_rows(const TensorView& view, Normal normal, int64_t begin, int64_t end) {
  normal.skip(begin * view.heads * view.dim);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t column = 0; column < view.dim; ++column) {
        store(view, row, head, column, normal.next());
      }
    }
  }
}

}  // namespace

Normal::Normal(uint64_t seed, uint32_t stream) : engine_(seeded(seed, stream)) {}

double Normal::next() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  // 53 random bits each; the first in (0, 1] for the logarithm.
  const double first = static_cast<double>((engine_() >> 11) + 1) * 0x1p-53;
  const double second = static_cast<double>(engine_() >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2 * std::log(first));
  const double angle = 2 * std::numbers::pi * second;
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

Uniform::Uniform(uint64_t seed, Draw draw) : engine_(seeded(seed, static_cast<uint32_t>(draw))) {}

void fill_normal(const TensorView& view, uint64_t seed, Draw draw) {
  constexpr int64_t kRows = 256;  // even, so that no pair of values is torn apart
  const int64_t blocks = (view.rows() + kRows - 1) / kRows;
  const int64_t parts =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(blocks, 1));
  const auto fill = [&](int64_t part) {
    const int64_t begin = blocks * part / parts * kRows;
    const int64_t end = std::min(blocks * (part + 1) / parts * kRows, view.rows());
    fill_rows(view, {seed, static_cast<uint32_t>(draw)}, begin, end);
  };
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) threads.emplace_back(fill, part);
  fill(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace longspan::tool
