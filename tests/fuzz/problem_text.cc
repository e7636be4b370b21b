// Any bytes: parsed, or refused with a message; what is parsed prints to a text that says the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "longspan/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const longspan::Result<longspan::Problem> problem = longspan::parse_problem(text);
  if (!problem.ok()) {
    if (problem.error().message.empty()) std::abort();
    return 0;
  }
  const longspan::Result<longspan::Problem> again = longspan::parse_problem(problem->text());
  if (!again.ok() || !(*again == *problem)) std::abort();
  if (again->text() != problem->text()) std::abort();
  return 0;
}
