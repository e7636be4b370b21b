#include "random.h"

#include <cmath>
#include <numbers>

#include "numbers.h"

namespace longspan::tool {
namespace {

std::mt19937_64 seeded(uint64_t seed, uint32_t stream) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), stream};
  return std::mt19937_64(sequence);
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

void fill_normal(const TensorView& view, uint64_t seed, Draw draw) {
  Normal normal(seed, static_cast<uint32_t>(draw));
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t column = 0; column < view.dim; ++column) {
        store(view, row, head, column, normal.next());
      }
    }
  }
}

}  // namespace longspan::tool
