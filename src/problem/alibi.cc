#include <bit>
#include <cmath>

#include "longspan/problem.h"

namespace longspan {

std::vector<double> default_alibi_slopes(int64_t heads) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<double> slopes;
  const auto slope = [](int64_t index, int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(index + 1) / static_cast<double>(of));
  };
  for (int64_t i = 0; i < power; ++i) slopes.push_back(slope(i, power));
  for (int64_t i = 0; power + i < heads; ++i) slopes.push_back(slope(2 * i, 2 * power));
  return slopes;
}

}  // namespace longspan
