// Plans as bytes in the C interface.
#include "engine/c_api_handles.h"
#include "longspan/plan_record.h"

using longspan::c_api::any_null;
using longspan::c_api::fail;
using longspan::c_api::guarded;
using longspan::c_api::invalid;

int32_t longspan_call_plan(const longspan_call* call, char* bytes, size_t capacity, size_t* size,
                           longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({call, size})) return fail(invalid("an argument is NULL"), error);
    if (bytes == nullptr && capacity > 0) return fail(invalid("bytes is NULL"), error);
    const auto record = call->call->record();
    if (!record.ok()) return fail(record.error(), error);
    const std::string plan = record->to_bytes();
    *size = plan.size();
    if (capacity >= plan.size()) std::copy(plan.begin(), plan.end(), bytes);
    return int32_t{LONGSPAN_OK};
  });
}

int32_t longspan_load(longspan_engine* engine, const char* bytes, size_t size, longspan_call** call,
                      longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({engine, call})) return fail(invalid("an argument is NULL"), error);
    // Without bytes the other ranks would wait for this one: an empty plan tells them.
    auto made =
        engine->engine->load(bytes == nullptr ? std::string_view() : std::string_view(bytes, size));
    if (!made.ok()) return fail(made.error(), error);
    *call = new longspan_call{std::move(*made)};
    return int32_t{LONGSPAN_OK};
  });
}
