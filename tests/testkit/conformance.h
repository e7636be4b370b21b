// One conformance case: a problem, how it is split and computed, and how it must end.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "group.h"
#include "inputs.h"
#include "longspan/engine.h"
#include "reference.h"
#include "verify.h"

namespace longspan::testkit {

struct Case {
  std::string problem;
  int ranks = 1;
  int nodes = 1;
  std::string forward = "ring";
  std::string backward = "ring";
  std::string partition = "contiguous";
  std::string provider = "cpu/tiled";
  uint64_t seed = 0;
  std::string modification = "";  // see modifications.h
  int head_slices = 1;
  std::optional<DeclineCode> declined = std::nullopt;  // how it must end, else with a pass
};

/// The case as flags of the command line, which has no callbacks.
std::string text(const Case& c);
inline void PrintTo(const Case& c, std::ostream* out) { *out << text(c); }

/// Threads of all devices that tests share; more than one, so that work is split.
inline constexpr int kThreads = 2;
const Device& shared_device();

Options options_of(const Case& c);

/// A test's own problem text must be right: fails the test and throws otherwise.
tool::Inputs inputs_of(const Case& c);

/// The same with actual lengths of the test's own; the problem has device_lengths.
tool::Inputs inputs_of(const Case& c, std::vector<int32_t> q, std::vector<int32_t> k);

/// Runs forward, and backward unless that is "none", with ranks as threads. Padding, outputs, saved
/// buffers and workspace start as NaN.
Result<tool::GroupResults> run_case(const Case& c, const tool::Inputs& inputs, const Device& device,
                                    int repeat = 1);

/// make_reference(), which must succeed.
tool::Reference reference_of(const tool::Inputs& inputs, bool forward_only = false);

/// Figures of all results, and what was verified of them.
struct Judgement {
  std::vector<tool::NamedMeasure> measures;
  std::vector<tool::Check> checks;
};

/// Results against float64, whole tensors: NaN first, then -inf positions, the bars of the dtype,
/// the rows that hold no token, and largest logits that all ranks know. `logit`: the largest
/// magnitude of a logit, where the case knows that it is large: its bars are then one ulp of that
/// in the accumulator type, if that is more.
Judgement judge(const tool::Inputs& inputs, const tool::GroupResults& results,
                const tool::Reference& reference, double logit = 1);

/// judge(), all of whose checks must pass. Returns the figures.
std::vector<tool::NamedMeasure> expect_right(const tool::Inputs& inputs,
                                             const tool::GroupResults& results,
                                             const tool::Reference& reference, double logit = 1);

/// Runs the case on inputs of the test's own and expects right results.
void expect_right_run(const Case& c, const tool::Inputs& inputs, const tool::Reference& reference,
                      double logit = 1);

/// The body of every case: it passes, or is declined with the code that the case states. Anything
/// else fails the test.
void expect_conforms(const Case& c);

/// explain() has the decline that the case states, and prepare() is unsupported with its text.
void expect_declined(const Case& c);

/// Names of those of the results that differ in some byte; empty when none does.
std::string different_results(const tool::ResultTensors& a, const tool::ResultTensors& b);

}  // namespace longspan::testkit
