// Runs of a conformance case whose ranks are threads on one GPU, held against float64.
#pragma once

#include <vector>

#include "testkit/conformance.h"

namespace longspan::testing {

/// Fails the test where there is none.
Device first_device();

Result<tool::GroupResults> run_on_device(const testkit::Case& c, const tool::Inputs& inputs,
                                         int repeat = 1);

/// The bars of GPUs, what rows without a token hold, and largest logits that all ranks know.
/// Returns the figures.
std::vector<tool::NamedMeasure> expect_right(const tool::Inputs& inputs,
                                             const tool::GroupResults& results,
                                             const tool::Reference& reference);

void expect_all_pass(const std::vector<tool::Check>& checks);

}  // namespace longspan::testing
