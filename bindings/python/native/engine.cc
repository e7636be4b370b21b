// Engines and prepared calls for Python.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <mutex>
#include <string>
#include <vector>

#include "errors.h"
#include "exports.h"
#include "handles.h"
#include "options.h"
#include "tensors.h"

namespace longspan::python {
namespace {

using ffi::Any;
using ffi::Array;
using ffi::Map;
using ffi::String;
using ffi::Tuple;

EngineRef make_engine(const CommunicatorRef& communicator, const String& device,
                      const OptionMap& options) {
  Device on = device_of(device);
  return EngineRef(
      value_or_raise(Engine::create(options_of(options), communicator->communicator, on)), on);
}

/// Collective when cold.
CallRef prepare(const EngineRef& engine, const String& problem) {
  const Problem parsed = value_or_raise(parse_problem(std::string(problem)));
  const std::lock_guard lock(engine->busy);
  return CallRef(value_or_raise(engine->engine->prepare(parsed)));
}

Array<Any> chosen(const Selection& selection) {
  return {String(std::string(selection.strategy->name)), String(selection.strategy_reason),
          String(std::string(selection.provider->name())), String(selection.provider_reason)};
}

Map<String, Any> describe(const CallRef& handle) {
  const Call& call = *handle->call;
  const Problem& problem = call.problem();
  const Explanation& explanation = call.explanation();
  Map<String, Any> facts;
  facts.Set("problem", String(problem.text()));
  facts.Set("dtype", String(std::string(name(problem.dtype))));
  facts.Set("layout", String(std::string(name(problem.layout))));
  facts.Set("heads", Array<int64_t>{problem.heads_q, problem.heads_kv});
  facts.Set("dims", Array<int64_t>{problem.dim_qk, problem.dim_v});
  facts.Set("sequences", static_cast<int64_t>(problem.lengths.sequences.size()));
  facts.Set("tokens", Array<int64_t>{problem.lengths.tokens_q, problem.lengths.tokens_k});
  facts.Set("scale", problem.scale);
  facts.Set("dropout", problem.dropout);
  facts.Set("alibi", problem.alibi != Alibi::kNone);
  facts.Set("sink", String(std::string(name(problem.sink))));
  facts.Set("max_logit", problem.max_logit);
  facts.Set("deterministic", problem.deterministic);
  facts.Set("partition", String(std::string(name(call.partition().kind()))));
  facts.Set("saved_bytes", handle->saved.bytes());
  facts.Set("kept_bytes", kept_bytes(call, handle->saved));
  facts.Set("forward", chosen(explanation.forward));
  facts.Set("forward_workspace", static_cast<int64_t>(call.workspace_bytes(Direction::kForward)));
  if (explanation.forward_only) return facts;
  facts.Set("backward", chosen(explanation.backward));
  facts.Set("backward_workspace", static_cast<int64_t>(call.workspace_bytes(Direction::kBackward)));
  return facts;
}

/// What a call may bring beside its tensors.
struct Values {
  double softcap;  // 0: the problem's
  double dropout;  // negative: the problem's
  int64_t seed, offset;
};

SideOperands side_of(const Device& device, const OptionalTensor& sink, const OptionalTensor& slopes,
                     const OptionalTensor& bias, const OptionalTensor& lengths_q,
                     const OptionalTensor& lengths_k, const Values& values) {
  SideOperands side{.sink = per_head_view(sink, "sinks", device),
                    .slopes = per_head_view(slopes, "alibi", device),
                    .bias = optional_rows_view(bias, "bias", device)};
  if (values.softcap != 0) side.softcap = values.softcap;
  if (values.dropout >= 0) {
    side.dropout = {values.dropout, static_cast<uint64_t>(values.seed),
                    static_cast<uint64_t>(values.offset)};
  }
  side.lengths = {.q = lengths_view(lengths_q, "lengths_q", device),
                  .k = lengths_view(lengths_k, "lengths_k", device)};
  return side;
}

Workspace workspace_of(int64_t address, int64_t bytes) {
  return {reinterpret_cast<void*>(address), static_cast<size_t>(bytes)};
}

Stream stream_of(const Device& device) {
  return {device.is_cuda() ? TVMFFIEnvGetStream(kDLCUDA, device.ordinal) : nullptr};
}

void run(const EngineRef& engine, const CallRef& call, const ForwardOperands& operands,
         int64_t saved, Workspace workspace) {
  Stream stream = stream_of(engine->device);
  const std::lock_guard lock(engine->busy);
  check_or_raise(
      engine->engine->forward(*call->call, operands, call->saved.at(saved), workspace, stream));
}

void run(const EngineRef& engine, const CallRef& call, const BackwardOperands& operands,
         int64_t saved, Workspace workspace) {
  Stream stream = stream_of(engine->device);
  const std::lock_guard lock(engine->busy);
  check_or_raise(
      engine->engine->backward(*call->call, operands, call->saved.at(saved), workspace, stream));
}

/// Tensors as attention() of the front ends documents them; the block of saved buffers and the
/// workspace as addresses. Collective.
void forward(const EngineRef& engine, const CallRef& call, const FfiTensor& q, const FfiTensor& k,
             const FfiTensor& v, const FfiTensor& o, const FfiTensor& lse, double scale,
             const OptionalTensor& sink, const OptionalTensor& slopes, const OptionalTensor& bias,
             const OptionalTensor& max_logit, const OptionalTensor& lengths_q,
             const OptionalTensor& lengths_k, double softcap, double dropout, int64_t seed,
             int64_t offset, int64_t saved, int64_t workspace, int64_t workspace_bytes) {
  const Device& device = engine->device;
  const ForwardOperands operands{.q = rows_view(q, "q", device),
                                 .k = rows_view(k, "k", device),
                                 .v = rows_view(v, "v", device),
                                 .o = rows_view(o, "o", device),
                                 .lse = statistics_view(lse, "lse", device),
                                 .scale = scale,
                                 .side = side_of(device, sink, slopes, bias, lengths_q, lengths_k,
                                                 {softcap, dropout, seed, offset}),
                                 .max_logit = per_head_view(max_logit, "max_logit", device)};
  run(engine, call, operands, saved, workspace_of(workspace, workspace_bytes));
}

/// forward() of a problem without side operands, for o alone; `kept` holds kept_bytes.
void forward_plain(const EngineRef& engine, const CallRef& call, const FfiTensor& q,
                   const FfiTensor& k, const FfiTensor& v, const FfiTensor& o, int64_t kept,
                   int64_t workspace, int64_t workspace_bytes) {
  const Device& device = engine->device;
  const TensorView q_rows = rows_view(q, "q", device);
  const ForwardOperands operands{.q = q_rows,
                                 .k = rows_view(k, "k", device),
                                 .v = rows_view(v, "v", device),
                                 .o = rows_view(o, "o", device),
                                 .lse = statistics_at(kept + call->saved.bytes(), q_rows),
                                 .scale = call->call->problem().scale};
  run(engine, call, operands, kept, workspace_of(workspace, workspace_bytes));
}

void backward(const EngineRef& engine, const CallRef& call, const FfiTensor& q, const FfiTensor& k,
              const FfiTensor& v, const FfiTensor& o, const FfiTensor& lse, const FfiTensor& dout,
              const FfiTensor& dq, const FfiTensor& dk, const FfiTensor& dv, double scale,
              const OptionalTensor& sink, const OptionalTensor& slopes, const OptionalTensor& bias,
              const OptionalTensor& dsink, const OptionalTensor& dbias,
              const OptionalTensor& lengths_q, const OptionalTensor& lengths_k, double softcap,
              double dropout, int64_t seed, int64_t offset, int64_t saved, int64_t workspace,
              int64_t workspace_bytes) {
  const Device& device = engine->device;
  const BackwardOperands operands{.q = rows_view(q, "q", device),
                                  .k = rows_view(k, "k", device),
                                  .v = rows_view(v, "v", device),
                                  .o = rows_view(o, "o", device),
                                  .lse = statistics_view(lse, "lse", device),
                                  .dout = rows_view(dout, "dout", device),
                                  .dq = rows_view(dq, "dq", device),
                                  .dk = rows_view(dk, "dk", device),
                                  .dv = rows_view(dv, "dv", device),
                                  .scale = scale,
                                  .side = side_of(device, sink, slopes, bias, lengths_q, lengths_k,
                                                  {softcap, dropout, seed, offset}),
                                  .dsink = per_head_view(dsink, "dsink", device),
                                  .dbias = optional_rows_view(dbias, "dbias", device)};
  run(engine, call, operands, saved, workspace_of(workspace, workspace_bytes));
}

/// backward() of what forward_plain kept.
void backward_plain(const EngineRef& engine, const CallRef& call, const FfiTensor& q,
                    const FfiTensor& k, const FfiTensor& v, const FfiTensor& o,
                    const FfiTensor& dout, const FfiTensor& dq, const FfiTensor& dk,
                    const FfiTensor& dv, int64_t kept, int64_t workspace, int64_t workspace_bytes) {
  const Device& device = engine->device;
  const TensorView q_rows = rows_view(q, "q", device);
  const BackwardOperands operands{.q = q_rows,
                                  .k = rows_view(k, "k", device),
                                  .v = rows_view(v, "v", device),
                                  .o = rows_view(o, "o", device),
                                  .lse = statistics_at(kept + call->saved.bytes(), q_rows),
                                  .dout = rows_view(dout, "dout", device),
                                  .dq = rows_view(dq, "dq", device),
                                  .dk = rows_view(dk, "dk", device),
                                  .dv = rows_view(dv, "dv", device),
                                  .scale = call->call->problem().scale};
  run(engine, call, operands, kept, workspace_of(workspace, workspace_bytes));
}

void synchronize(const EngineRef& engine) {
  Stream stream = stream_of(engine->device);
  const std::lock_guard lock(engine->busy);
  check_or_raise(engine->engine->synchronize(stream));
}

/// Counters since the engine's creation.
Map<String, int64_t> counters(const EngineRef& engine) {
  const std::lock_guard lock(engine->busy);
  const Counters counted = engine->engine->counters();
  const CacheStatistics plans = engine->engine->cache_statistics();
  return {{String("bytes_sent_forward"), counted.bytes_sent_forward},
          {String("bytes_sent_backward"), counted.bytes_sent_backward},
          {String("attend_launches"), counted.attend_launches},
          {String("fill_steps"), counted.fill_steps},
          {String("selections"), counted.selections},
          {String("plan_hits"), plans.hits},
          {String("plan_builds"), plans.builds},
          {String("plan_evictions"), plans.evictions}};
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(make_engine)
LONGSPAN_EXPORT(prepare)
LONGSPAN_EXPORT(describe)
LONGSPAN_EXPORT(forward)
LONGSPAN_EXPORT(forward_plain)
LONGSPAN_EXPORT(backward)
LONGSPAN_EXPORT(backward_plain)
LONGSPAN_EXPORT(synchronize)
LONGSPAN_EXPORT(counters)
