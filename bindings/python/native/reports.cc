// What the command line reports, for Python.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>

#include <string>
#include <variant>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "errors.h"
#include "exports.h"
#include "longspan/problem.h"
#include "longspan/version.h"
#include "support.h"

namespace longspan::python {
namespace {

using tvm::ffi::Array;
using tvm::ffi::String;

String version() { return LONGSPAN_VERSION; }

/// The canonical text.
String canonical_problem(const String& text) {
  return value_or_raise(parse_problem(std::string(text))).text();
}

/// The JSON report of `longspan explain|schedule|simulate|support FLAGS`, declines included.
String report(const Array<String>& words) {
  const auto parsed =
      value_or_raise(tool::parse_arguments(std::vector<std::string>(words.begin(), words.end())));
  const auto* arguments = std::get_if<tool::Arguments>(&parsed);
  if (arguments == nullptr) return "";
  if (arguments->command == "explain") return tool::dump(tool::explain_command(*arguments).json);
  if (arguments->command == "schedule") return tool::dump(tool::schedule_command(*arguments).json);
  if (arguments->command == "simulate") return tool::dump(tool::simulate_command(*arguments).json);
  if (arguments->command == "support") return tool::dump(tool::support_command(*arguments).json);
  raise({ErrorCode::kInvalidArgument,
         "report of '" + arguments->command + "'; explain, schedule, simulate or support",
         "python"});
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(version)
LONGSPAN_EXPORT(canonical_problem)
LONGSPAN_EXPORT(report)
