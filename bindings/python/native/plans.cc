// Plans as bytes, for Python.
#include <tvm/ffi/string.h>

#include <mutex>
#include <string_view>

#include "errors.h"
#include "exports.h"
#include "handles.h"
#include "longspan/plan_record.h"

namespace longspan::python {
namespace {

using ffi::Bytes;

Bytes plan_bytes(const CallRef& call) {
  return Bytes(value_or_raise(call->call->record()).to_bytes());
}

/// Collective when cold.
CallRef load(const EngineRef& engine, const Bytes& plan) {
  const std::lock_guard lock(engine->busy);
  return CallRef(value_or_raise(engine->engine->load(std::string_view(plan.data(), plan.size()))));
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(plan_bytes)
LONGSPAN_EXPORT(load)
