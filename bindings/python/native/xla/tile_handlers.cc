// Handlers of one rank's tiles in one round: O and LSE, or gradients, are carried through.
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "devices.h"
#include "sharded.h"

namespace longspan::xla {
namespace {

/// Which tiles.
struct Which {
  std::string_view problem;
  std::string_view request;
  int64_t round = 0;
};

struct Found {
  std::shared_ptr<ShardedCall> call;
  ShardedCall::Tiles tiles;
};

/// The rank is the first argument: the index of the device on the mesh axis.
Result<Found> find(const Where& where, const Arrays& arrays, const Which& which,
                   Direction direction) {
  int32_t rank = 0;
  const ffi::AnyBuffer index = arrays.argument(0);
  if (index.size_bytes() != sizeof(rank)) {
    return Error{ErrorCode::kInvalidArgument, "the rank is no single int32", "tiles"};
  }
  LONGSPAN_CHECK_OK(where.read(&rank, index));
  Found found;
  LONGSPAN_TRY(found.call, ShardedCall::find({which.problem, which.request, where.ordinal}));
  LONGSPAN_TRY(found.tiles, found.call->tiles(direction, rank, which.round));
  return found;
}

/// Carried arrays come in and go out in the same memory.
Status check_carried(const Arrays& arrays, size_t argument, size_t result) {
  if (arrays.argument(argument).untyped_data() == arrays.result(result).untyped_data()) return {};
  return Error{ErrorCode::kInternal, "XLA gave a carried array two places", "tiles"};
}

/// slopes, bias, dropout.
Result<ScoreTerms> terms(const Problem& problem, const Arrays& arrays, size_t first,
                         const Where& where) {
  ScoreTerms terms{.softcap = problem.softcap};
  LONGSPAN_TRY(terms.slopes, per_head_view(arrays.argument(first)));
  LONGSPAN_TRY(terms.bias, bias_view(arrays.argument(first + 1)));
  LONGSPAN_TRY(terms.dropout, dropout_of(problem, arrays.argument(first + 2), where));
  return terms;
}

Result<TensorView> rows(const ffi::AnyBuffer& array) { return rows_view(array, Layout::kTHD); }

/// Arguments rank, q, k, v, o, lse, max_logit, slopes, bias, dropout; results o, lse, max_logit,
/// workspace. o, lse and max_logit are carried.
Status run_attend(const Where& where, const Arrays& arrays, const Which& which) {
  LONGSPAN_CHECK_OK(arrays.expect(10, 4));
  LONGSPAN_TRY(const Found found, find(where, arrays, which, Direction::kForward));
  if (found.tiles.tiles.empty()) return {};
  ForwardTiles x{.tiles = found.tiles.tiles,
                 .scale = found.call->problem().scale,
                 .terms = {},
                 .stream = where.stream,
                 .staged = found.tiles.staged};
  for (size_t i = 0; i < 3; ++i) LONGSPAN_CHECK_OK(check_carried(arrays, 4 + i, i));
  LONGSPAN_TRY(x.q, rows(arrays.argument(1)));
  LONGSPAN_TRY(x.k, rows(arrays.argument(2)));
  LONGSPAN_TRY(x.v, rows(arrays.argument(3)));
  LONGSPAN_TRY(x.terms, terms(found.call->problem(), arrays, 7, where));
  LONGSPAN_TRY(x.o, rows(arrays.result(0)));
  LONGSPAN_TRY(x.lse, statistics_view(arrays.result(1), Layout::kTHD));
  LONGSPAN_TRY(x.max_logit, per_head_view(arrays.result(2)));
  return found.call->side(Direction::kForward).plan->forward(x, workspace_of(arrays.result(3)));
}

/// Arguments rank, q, k, v, dout, lse, delta, dq, dk, dv, dbias, slopes, bias, dropout; results
/// dq, dk, dv, dbias, workspace. The gradients are carried.
Status run_attend_backward(const Where& where, const Arrays& arrays, const Which& which) {
  LONGSPAN_CHECK_OK(arrays.expect(14, 5));
  LONGSPAN_TRY(const Found found, find(where, arrays, which, Direction::kBackward));
  if (found.tiles.tiles.empty()) return {};
  BackwardTiles x{.tiles = found.tiles.tiles,
                  .scale = found.call->problem().scale,
                  .terms = {},
                  .stream = where.stream,
                  .staged = found.tiles.staged};
  for (size_t i = 0; i < 4; ++i) LONGSPAN_CHECK_OK(check_carried(arrays, 7 + i, i));
  LONGSPAN_TRY(x.q, rows(arrays.argument(1)));
  LONGSPAN_TRY(x.k, rows(arrays.argument(2)));
  LONGSPAN_TRY(x.v, rows(arrays.argument(3)));
  LONGSPAN_TRY(x.dout, rows(arrays.argument(4)));
  LONGSPAN_TRY(x.lse, statistics_view(arrays.argument(5), Layout::kTHD));
  LONGSPAN_TRY(x.delta, statistics_view(arrays.argument(6), Layout::kTHD));
  LONGSPAN_TRY(x.terms, terms(found.call->problem(), arrays, 11, where));
  LONGSPAN_TRY(x.dq, rows(arrays.result(0)));
  LONGSPAN_TRY(x.dk, rows(arrays.result(1)));
  LONGSPAN_TRY(x.dv, rows(arrays.result(2)));
  LONGSPAN_TRY(x.dbias, bias_view(arrays.result(3)));
  return found.call->side(Direction::kBackward).plan->backward(x, workspace_of(arrays.result(4)));
}

template <Status (*kRun)(const Where&, const Arrays&, const Which&)>
ffi::Error on_host(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   std::string_view problem, std::string_view request, int64_t round) {
  return to_xla(kRun({.ordinal = kHost}, {arguments, results}, {problem, request, round}));
}

template <Status (*kRun)(const Where&, const Arrays&, const Which&)>
ffi::Error on_cuda(void* stream, int32_t ordinal, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results, std::string_view problem, std::string_view request,
                   int64_t round) {
  return to_xla(kRun({ordinal, {stream}}, {arguments, results}, {problem, request, round}));
}

auto host_round_binding() { return host_binding().Attr<int64_t>("round"); }
auto cuda_round_binding() { return cuda_binding().Attr<int64_t>("round"); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_attend_cpu, on_host<run_attend>, host_round_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_attend_backward_cpu, on_host<run_attend_backward>,
                              host_round_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_attend_cuda, on_cuda<run_attend>, cuda_round_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(longspan_xla_attend_backward_cuda, on_cuda<run_attend_backward>,
                              cuda_round_binding());

}  // namespace longspan::xla
