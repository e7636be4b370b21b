// The store of prepared kernels that tests run.
#pragma once

#include <cstdlib>
#include <string>

namespace longspan::testing {

/// The store that LONGSPAN_TEST_STORE names, or build/store: see scripts/prepared_store.sh.
inline std::string test_store() {
  const char* const named = std::getenv("LONGSPAN_TEST_STORE");
  return named == nullptr ? "build/store" : named;
}

}  // namespace longspan::testing
