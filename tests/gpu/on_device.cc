#include "gpu/on_device.h"

#include <gtest/gtest.h>

namespace longspan::testing {

Device first_device() {
  const auto device = cuda_device(0);
  EXPECT_TRUE(device.ok()) << device.error().text();
  return *device;
}

Result<tool::GroupResults> run_on_device(const testkit::Case& c, const tool::Inputs& inputs,
                                         int repeat) {
  const Device device = first_device();
  return tool::run_threads({.inputs = &inputs,
                            .options = testkit::options_of(c),
                            .topology = Topology::blocks(c.ranks, c.nodes),
                            .communicator = "peer",
                            .device = device,
                            .devices = std::vector<Device>(static_cast<size_t>(c.ranks), device),
                            .repeat = repeat});
}

std::vector<tool::NamedMeasure> expect_right(const tool::Inputs& inputs,
                                             const tool::GroupResults& results,
                                             const tool::Reference& reference) {
  std::vector<tool::NamedMeasure> measures = tool::measure_all(inputs, results, reference);
  const double largest = tool::largest_finite(reference.lse.view);
  expect_all_pass(tool::check_measures(measures, tool::bars(inputs.problem.dtype, largest, true)));
  expect_all_pass({tool::check_padding(inputs.problem, results), tool::check_max_logit(results)});
  return measures;
}

void expect_all_pass(const std::vector<tool::Check>& checks) {
  for (const tool::Check& check : checks) {
    EXPECT_TRUE(check.pass()) << check.name << ": " << check.value << " > " << check.bar << " ("
                              << check.detail << ")";
  }
}

}  // namespace longspan::testing
