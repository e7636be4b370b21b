// Who offers what: every option, put to every strategy and provider.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/decline.h"
#include "longspan/problem.h"

namespace longspan::tool {

/// What the options are asked with. Ranks are more than key heads, nodes more than one, so that
/// every strategy moves something.
inline constexpr std::string_view kSupportBase =
    "dtype=f32 heads=8/2 dim=64 lengths=256 mask=causal";
inline constexpr int kSupportRanks = 4;
inline constexpr int kSupportNodes = 2;

/// One thing that a problem may ask for.
struct SupportOption {
  std::string name;
  Problem problem;
};

/// Every value of every key, and what has no key.
Result<std::vector<SupportOption>> support_options();

/// The answers of one strategy or provider: forward, backward.
using Answers = std::array<Verdict, 2>;

struct SupportRow {
  std::string option;
  std::string problem;
  std::vector<Answers> answers;  // as SupportMatrix::names
};

struct SupportMatrix {
  std::vector<std::string> names;  // strategies, then providers
  std::vector<SupportRow> rows;
};

Result<SupportMatrix> support_matrix();

}  // namespace longspan::tool
