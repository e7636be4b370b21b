#include "providers/hopper/terms.h"

#include <algorithm>
#include <numbers>

namespace longspan::hopper {

float* of_first_head(const TensorView& view, const ScoreTerms& given) {
  if (view.data == nullptr) return nullptr;
  return static_cast<float*>(view.data) + given.head_begin * view.stride_head;
}

Terms terms_of(const ScoreTerms& given, float scale_log2) {
  constexpr double kWideCap = 100;     // tanh by exponentials is wrong by 3e-7 of the cap
  constexpr double kLeastCap = 1e-30;  // 0 stands for none, and a product of 0 by it is 0
  Terms terms{.slopes = of_first_head(given.slopes, given),
              .slope_stride = given.slopes.stride_head,
              .head_begin = static_cast<uint32_t>(given.head_begin)};
  if (given.softcap != 0) {
    const double cap = std::max(given.softcap, kLeastCap);
    terms.cap_log2 = static_cast<float>(cap * std::numbers::log2e);
    terms.cap_rate = static_cast<float>(2 * scale_log2 / cap);
    terms.wide_cap = cap > kWideCap;
  }
  const Dropout& dropout = given.dropout;
  terms.drops = dropout.probability != 0;
  if (!terms.drops) return terms;
  terms.last_dropped = static_cast<uint32_t>(dropout.threshold() - 1);
  terms.key0 = dropout.key()[0], terms.key1 = dropout.key()[1];
  terms.key = dropout.device_key;
  terms.keep_factor = static_cast<float>(dropout.keep_factor());
  return terms;
}

}  // namespace longspan::hopper
