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

/// o, lse, dq, dk, dv against the reference.
std::vector<NamedMeasure> measure_all(const Inputs& inputs, const GroupResults& results,
                                      const Reference& reference);

/// The bars of the dtype and of the largest logit. For 16-bit types those of dq and dk are wider
/// where rounding O to that type alone, in float64, moves dq and dk: backward computes
/// delta = rowsum(dout * O) from the O that forward wrote, which matters where few keys carry a
/// row's weight. Computed only where dq or dk are above the narrow bar.
Result<Bars> bars_of_run(const Inputs& inputs, const std::vector<NamedMeasure>& measures,
                         const Reference& reference, const Device& device, Progress& progress);

/// NaN, -inf positions and error bars of each result.
std::vector<Check> check_measures(const std::vector<NamedMeasure>& measures, const Bars& bars);

/// Rows that hold no token: 0, and -inf in the LSE.
Check check_padding(const Problem& problem, const GroupResults& results);

/// 16-bit results of several ranks against those of one: at most `factor` times the error. Errors
/// below the bar of f32 are rounding noise of FP32 and always pass.
std::vector<Check> check_against_one_rank(const std::vector<NamedMeasure>& measures,
                                          const std::vector<NamedMeasure>& one_rank, double factor);

}  // namespace longspan::tool
