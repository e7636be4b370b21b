// Handlers of one rank's forward and backward: XLA's arrays in, the engine's call.
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "devices.h"
#include "single.h"

namespace longspan::xla {
namespace {

struct Text {
  std::string_view problem;
  std::string_view request;
};

/// sink, slopes, bias, dropout: behind the tensors of both directions.
Result<SideOperands> sides(const Problem& problem, const Arrays& arrays, size_t first,
                           const Where& where) {
  SideOperands side;
  LONGSPAN_TRY(side.sink, per_head_view(arrays.argument(first)));
  LONGSPAN_TRY(side.slopes, per_head_view(arrays.argument(first + 1)));
  LONGSPAN_TRY(side.bias, bias_view(arrays.argument(first + 2)));
  LONGSPAN_TRY(side.dropout, dropout_of(problem, arrays.argument(first + 3), where));
  return side;
}

/// Arguments q, k, v, sides; results o, lse, max_logit, workspace, then the saved buffers.
Status run_forward(const Where& where, const Arrays& arrays, const Text& text) {
  LONGSPAN_CHECK_OK(arrays.expect(7, 4));
  LONGSPAN_TRY(const auto call, SingleCall::find({text.problem, text.request, where.ordinal}));
  const Problem& problem = call->call().problem();
  const Layout layout = problem.layout;
  ForwardOperands x;
  LONGSPAN_TRY(x.q, rows_view(arrays.argument(0), layout));
  LONGSPAN_TRY(x.k, rows_view(arrays.argument(1), layout));
  LONGSPAN_TRY(x.v, rows_view(arrays.argument(2), layout));
  LONGSPAN_TRY(x.side, sides(problem, arrays, 3, where));
  LONGSPAN_TRY(x.o, rows_view(arrays.result(0), layout));
  LONGSPAN_TRY(x.lse, statistics_view(arrays.result(1), layout));
  LONGSPAN_TRY(x.max_logit, per_head_view(arrays.result(2)));
  x.scale = problem.scale;
  const Workspace workspace = workspace_of(arrays.result(3));
  Saved saved;
  for (size_t i = 4; i < arrays.results(); ++i) {
    saved.push_back(arrays.result(i).untyped_data());
  }
  Stream stream = where.stream;
  return call->run(
      [&](Engine& engine) { return engine.forward(call->call(), x, saved, workspace, stream); });
}

/// Arguments q, k, v, o, lse, dout, sides, then the saved buffers; results dq, dk, dv, dsink,
/// dbias, workspace.
Status run_backward(const Where& where, const Arrays& arrays, const Text& text) {
  LONGSPAN_CHECK_OK(arrays.expect(10, 6));
  LONGSPAN_TRY(const auto call, SingleCall::find({text.problem, text.request, where.ordinal}));
  const Problem& problem = call->call().problem();
  const Layout layout = problem.layout;
  BackwardOperands x;
  size_t place = 0;
  for (TensorView* const view : {&x.q, &x.k, &x.v, &x.o}) {
    LONGSPAN_TRY(*view, rows_view(arrays.argument(place++), layout));
  }
  LONGSPAN_TRY(x.lse, statistics_view(arrays.argument(4), layout));
  LONGSPAN_TRY(x.dout, rows_view(arrays.argument(5), layout));
  LONGSPAN_TRY(x.side, sides(problem, arrays, 6, where));
  LONGSPAN_TRY(x.dq, rows_view(arrays.result(0), layout));
  LONGSPAN_TRY(x.dk, rows_view(arrays.result(1), layout));
  LONGSPAN_TRY(x.dv, rows_view(arrays.result(2), layout));
  LONGSPAN_TRY(x.dsink, per_head_view(arrays.result(3)));
  LONGSPAN_TRY(x.dbias, bias_view(arrays.result(4)));
  x.scale = problem.scale;
  const Workspace workspace = workspace_of(arrays.result(5));
  Saved saved;
  for (size_t i = 10; i < arrays.arguments(); ++i) {
    saved.push_back(arrays.argument(i).untyped_data());
  }
  Stream stream = where.stream;
  return call->run(
      [&](Engine& engine) { return engine.backward(call->call(), x, saved, workspace, stream); });
}

template <Status (*kRun)(const Where&, const Arrays&, const Text&)>
ffi::Error on_host(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   std::string_view problem, std::string_view request) {
  return to_xla(kRun({.ordinal = kHost}, {arguments, results}, {problem, request}));
}

template <Status (*kRun)(const Where&, const Arrays&, const Text&)>
ffi::Error on_cuda(void* stream, int32_t ordinal, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results, std::string_view problem, std::string_view request) {
  return to_xla(kRun({ordinal, {stream}}, {arguments, results}, {problem, request}));
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_forward_cpu, on_host<run_forward>, host_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_backward_cpu, on_host<run_backward>, host_binding());
// They wait for nothing and allocate nothing, so XLA may capture them into command buffers.
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_forward_cuda, on_cuda<run_forward>, cuda_binding(),
                              {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_backward_cuda, on_cuda<run_backward>, cuda_binding(),
                              {ffi::Traits::kCmdBufferCompatible});

}  // namespace longspan::xla
