#include <fmt/format.h>

#include <memory>
#include <utility>

#include "support.h"

namespace longspan::tool {
namespace {

constexpr const char* kTogether =
    "window=32,0 prefix=16 chunk=64 softcap=50 alibi=default bias=b,h sink=learnable dropout=0.1 "
    "deterministic=true max_logit=true";

/// Keys over those of kSupportBase.
constexpr const char* kOptions[] = {
    "dtype=f64",
    "dtype=f32",
    "dtype=f16",
    "dtype=bf16",
    "heads=8/8",
    "heads=8/1",
    "heads=3/1",
    "dim=1",
    "dim=96",
    "dim=256",
    "dim=576",
    "dim=192 dim_v=128",
    "dim=576 dim_v=512",
    "lengths=200,0,56",
    "lengths=200,56 padded=224,64",
    "lengths=256 tokens=300 kv_tokens=280",
    "lengths=128,128 layout=bshd",
    "lengths=128,128 layout=sbhd",
    "lengths=128,128 layout=thd",
    "mask=none",
    "mask=causal align=top_left",
    "mask=causal align=bottom_right",
    "lengths=70 kv_lengths=256 mask=none",
    "lengths=70 kv_lengths=256 mask=causal align=top_left",
    "lengths=70 kv_lengths=256 mask=causal align=bottom_right",
    "lengths=256 kv_lengths=70 mask=none",
    "lengths=256 kv_lengths=70 mask=causal align=top_left",
    "lengths=256 kv_lengths=70 mask=causal align=bottom_right",
    "mask=none window=32,-1",
    "mask=none window=-1,16",
    "mask=none window=32,16",
    "mask=causal window=32,0",
    "lengths=70 kv_lengths=256 mask=none align=top_left window=32,16",
    "lengths=70 kv_lengths=256 mask=none align=bottom_right window=32,16",
    "lengths=256 kv_lengths=70 mask=none align=top_left window=32,16",
    "lengths=256 kv_lengths=70 mask=none align=bottom_right window=32,16",
    "prefix=16",
    "chunk=64",
    "scale=1",
    "softcap=50",
    "alibi=default",
    "bias=1,1",
    "bias=b,1",
    "bias=1,h",
    "bias=b,h",
    "bias=1,1,1,s",
    "sink=off_by_one",
    "sink=learnable",
    "dropout=0.1",
    "page=16",
    "fp8=delayed",
    "fp8=current",
    "fp8=mxfp8",
    "deterministic=true",
    "invariant=true",
    "max_logit=true",
    "device_lengths=true",
    "device_lengths=true mask=causal align=bottom_right",
    kTogether,
};

Result<SupportOption> option_of(const std::string& text) {
  LONGSPAN_TRY(const ProblemFields base, parse_fields(kSupportBase));
  LONGSPAN_TRY(const ProblemFields over, parse_fields(text));
  LONGSPAN_TRY(Problem problem, make_problem(base.merged(over)));
  return SupportOption{text, std::move(problem)};
}

Result<SupportOption> modified(const std::string& name, Modification modification) {
  LONGSPAN_TRY(SupportOption option, option_of(""));
  option.name = name;
  modification.key = name;
  option.problem.modification.functions = std::make_shared<const Modification>(modification);
  return option;
}

double unchanged(double score, const ScoreIndex&) { return score; }
double one(double, const ScoreIndex&) { return 1; }
bool all(const ScoreIndex&) { return true; }

}  // namespace

Result<std::vector<SupportOption>> support_options() {
  std::vector<SupportOption> options;
  for (const char* text : kOptions) {
    LONGSPAN_TRY(SupportOption option, option_of(text));
    options.push_back(std::move(option));
  }
  LONGSPAN_TRY(SupportOption scores,
               modified("callback: score and derivative",
                        {.key = {}, .score = unchanged, .derivative = one, .visible = {}}));
  LONGSPAN_TRY(
      SupportOption pairs,
      modified("callback: visible", {.key = {}, .score = {}, .derivative = {}, .visible = all}));
  options.push_back(std::move(scores));
  options.push_back(std::move(pairs));
  return options;
}

}  // namespace longspan::tool
