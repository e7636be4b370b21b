#include "longspan/dropout.h"

#include <cmath>

#include "base/philox.h"

namespace longspan {

uint64_t Dropout::threshold() const {
  return static_cast<uint64_t>(std::ceil(std::ldexp(probability, 32)));
}

bool Dropout::keeps(const ScoreIndex& index) const {
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  return philox4x32({word(index.sequence), word(index.head), word(index.q), word(index.k)},
                    key())[0] >= threshold();
}

}  // namespace longspan
