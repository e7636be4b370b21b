// Bytes decide a problem, its options, and how it is computed; the result must be the oracle's.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "testkit/draws.h"

namespace {

using namespace longspan;

void give_up(const testkit::Case& c, const std::string& what) {
  fmt::print(stderr, "longspan run {}\n{}\n", testkit::text(c), what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testkit::Random random(std::span<const uint8_t>(data, size));
  const testkit::Drawn drawn = testkit::draw_problem(random, size);
  const testkit::Case c = testkit::draw_run(random, drawn);
  const tool::Inputs inputs = testkit::inputs_of(c);
  const tool::Reference reference =
      testkit::reference_of(inputs, drawn.backward.front() == kNoStrategy);
  const auto results = testkit::run_case(c, inputs, testkit::shared_device());
  if (!results.ok()) give_up(c, results.error().text());
  for (const tool::Check& check : testkit::judge(inputs, *results, reference).checks) {
    if (!check.pass()) give_up(c, fmt::format("{}: {} > {}", check.name, check.value, check.bar));
  }
  return 0;
}
