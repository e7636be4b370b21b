#include "providers/prepared/values.h"

#include <algorithm>

namespace longspan::prepared {
namespace {

// In the order of Name.
constexpr std::array<std::string_view, kNames> kTexts = {"q",
                                                         "k",
                                                         "v",
                                                         "o",
                                                         "lse",
                                                         "dout",
                                                         "dq",
                                                         "dk",
                                                         "dv",
                                                         "cumulative_q",
                                                         "cumulative_k",
                                                         "lengths_q",
                                                         "lengths_k",
                                                         "delta_rows",
                                                         "lse_log2",
                                                         "dq_sum",
                                                         "dk_sum",
                                                         "dv_sum",
                                                         "dq_turns",
                                                         "dk_turns",
                                                         "dv_turns"};

}  // namespace

std::string_view name(Name name) { return kTexts[static_cast<size_t>(name)]; }

std::optional<Name> parse_name(std::string_view text) {
  const auto found = std::ranges::find(kTexts, text);
  if (found == kTexts.end()) return std::nullopt;
  return static_cast<Name>(found - kTexts.begin());
}

std::string_view name(Element element) {
  constexpr std::array<std::string_view, 4> kElements = {"float16", "bfloat16", "float32", "int32"};
  return kElements[static_cast<size_t>(element)];
}

}  // namespace longspan::prepared
