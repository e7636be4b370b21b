// Whether the results of a run are right.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "group.h"
#include "measures.h"
#include "reference.h"

namespace longspan::tool {

/// Figures of one result.
struct NamedMeasure {
  std::string name;
  Measure measure;
};

/// All results against the reference; both have the same ones.
std::vector<NamedMeasure> measure_all(const Inputs& inputs, const GroupResults& results,
                                      const Reference& reference);

/// NaN, -inf positions and error bars of each result.
std::vector<Check> check_measures(const std::vector<NamedMeasure>& measures, const Bars& bars);

/// Rows that hold no token: 0, and -inf in the LSE.
Check check_padding(const Problem& problem, const GroupResults& results);

/// The largest logits are the same on every rank.
Check check_max_logit(const GroupResults& results);

/// 16-bit results of several ranks against those of one: at most `factor` times the error. Errors
/// below the bar of f32 are rounding noise of FP32 and always pass.
std::vector<Check> check_against_one_rank(const std::vector<NamedMeasure>& measures,
                                          const std::vector<NamedMeasure>& one_rank, double factor);

}  // namespace longspan::tool
