// Where libraries and stores of others are.
#include "longspan/libraries.h"

#include <tvm/ffi/string.h>

#include <string>

#include "errors.h"
#include "exports.h"

namespace longspan::python {
namespace {

void set_prepared_store(const tvm::ffi::String& folder) {
  check_or_raise(longspan::set_prepared_store(std::string(folder)));
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(set_prepared_store)
