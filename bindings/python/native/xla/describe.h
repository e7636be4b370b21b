// What the Python side asks before it writes a program. Plain C, for ctypes.
#pragma once

#include <cstdint>

extern "C" {

/// A JSON object that the caller frees with longspan_xla_free. What failed is
/// {"error": {"code", "message"}}. `ordinal` is -1 for the host, else a CUDA device's number.
///
/// One rank: {"problem", "layout", "workspace": {"forward", "backward"}, "saved": [{"dtype",
/// "shape"}]}. Several: {"problem", "slopes", "exact_o", "forward", "backward"} where a direction
/// is
/// {"workspace", "gather", "rounds": [{"distance", "rows", "sent": [[[source, target, rows]]]}]}.
char* longspan_xla_describe(const char* problem, const char* request, int32_t ordinal);

/// What is asked for as a plan; the problem of a request that is a plan is its own: {"plan": bytes,
/// "problem", "layout", "partition", "ranks", "forward", "backward"} where a direction is
/// [strategy, why, provider, why], or null.
char* longspan_xla_record(const char* problem, const char* request, int32_t ordinal);

/// {"partition", "reason", "q", "k"} where a side is a list, by rank, of {"rows", "batch", "runs":
/// [[local row, global row, first position, stride, size, valid]]}.
char* longspan_xla_shards(const char* problem, const char* request);

/// {}. This library's own store of prepared kernels: see longspan/libraries.h.
char* longspan_xla_set_prepared_store(const char* folder);

void longspan_xla_free(char* text);

}  // extern "C"
