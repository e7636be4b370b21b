// Engines and calls of the C interface.
#include "longspan/c_api.h"

#include "engine/c_api_handles.h"
#include "engine/call.h"
#include "longspan/routing_table.h"
#include "longspan/version.h"

using longspan::c_api::any_null;
using longspan::c_api::done;
using longspan::c_api::fail;
using longspan::c_api::guarded;
using longspan::c_api::invalid;

namespace {

longspan::TensorView view(const longspan_tensor& t) {
  return {t.data,         static_cast<longspan::DType>(t.dtype),
          t.batch,        t.seq,
          t.heads,        t.dim,
          t.stride_batch, t.stride_seq,
          t.stride_head,  t.pages,
          t.page_count};
}

longspan::TensorView view(const longspan_tensor* t) {
  return t == nullptr ? longspan::TensorView() : view(*t);
}

std::span<const int32_t> lengths(const longspan_call* call, const int32_t* given) {
  if (given == nullptr) return {};
  return {given, call->call->problem().lengths.sequences.size()};
}

longspan::SideOperands side_operands(const longspan_call* call, const longspan_sides* given) {
  if (given == nullptr) return {};
  longspan::SideOperands side{
      .sink = view(given->sink), .slopes = view(given->slopes), .bias = view(given->bias)};
  if (given->softcap != 0) side.softcap = given->softcap;
  if (given->dropout_set != 0) {
    side.dropout = {given->dropout, given->dropout_seed, given->dropout_offset};
  }
  side.lengths = {.q = lengths(call, given->lengths_q), .k = lengths(call, given->lengths_k)};
  return side;
}

bool known_dtypes(std::initializer_list<const longspan_tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const longspan_tensor* t) {
    return t == nullptr || (t->dtype >= LONGSPAN_F64 && t->dtype <= LONGSPAN_BF16);
  });
}

bool known_dtypes(const longspan_sides* sides) {
  return sides == nullptr || known_dtypes({sides->sink, sides->slopes, sides->bias,
                                           sides->max_logit, sides->dsink, sides->dbias});
}

longspan::Saved saved_buffers(const longspan_call* call, void* const* saved) {
  const size_t count = longspan_call_saved_count(call);
  return saved == nullptr ? longspan::Saved{} : longspan::Saved(saved, saved + count);
}

longspan::Log log_of(const longspan_options& given) {
  if (given.log == nullptr) return {};
  return [log = given.log, context = given.log_context](longspan::LogLevel level,
                                                        std::string_view message) {
    log(context, static_cast<int32_t>(level), std::string(message).c_str());
  };
}

std::string text_or_auto(const char* text) { return text == nullptr ? "auto" : text; }

longspan::Result<longspan::Options> options_of(const longspan_options* given) {
  longspan::Options options;
  if (given == nullptr) return options;
  options.forward.strategy = text_or_auto(given->forward_strategy);
  options.backward.strategy = text_or_auto(given->backward_strategy);
  LONGSPAN_TRY(options.forward.routing,
               longspan::parse_routing(text_or_auto(given->forward_provider)));
  LONGSPAN_TRY(options.backward.routing,
               longspan::parse_routing(text_or_auto(given->backward_provider)));
  options.partition = text_or_auto(given->partition);
  options.require_fp32_partials = given->require_fp32_partials != 0;
  options.score_bytes = given->score_bytes;
  if (given->deadline_ms != 0) options.deadline = std::chrono::milliseconds(given->deadline_ms);
  if (given->uniform_lengths != 0) options.promises.push_back(longspan::Promise::kUniformLengths);
  options.log = log_of(*given);
  if (given->routing_table != nullptr) {
    LONGSPAN_TRY(longspan::RoutingTable table, longspan::RoutingTable::load(given->routing_table));
    options.routing_table = std::make_shared<const longspan::RoutingTable>(std::move(table));
  }
  return options;
}

const longspan::Shard& shard(const longspan_call* call, int32_t side) {
  const auto& prepared = static_cast<const longspan::PreparedCall&>(*call->call);
  const longspan::Partition& partition = prepared.partition();
  return side == LONGSPAN_KEY ? partition.k(prepared.rank()) : partition.q(prepared.rank());
}

/// The specs that the caller allocates.
std::vector<longspan::BufferSpec> own_buffers(const longspan_call* call) {
  std::vector<longspan::BufferSpec> specs = call->call->saved_layout();
  std::erase_if(specs, [](const longspan::BufferSpec& spec) { return !spec.alias.empty(); });
  return specs;
}

}  // namespace

const char* longspan_version(void) { return LONGSPAN_VERSION; }

int32_t longspan_engine_create(const longspan_options* options, longspan_communicator* communicator,
                               longspan_device* device, longspan_engine** engine,
                               longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({communicator, device, engine})) return fail(invalid("a handle is NULL"), error);
    auto parsed = options_of(options);
    if (!parsed.ok()) return fail(parsed.error(), error);
    auto made =
        longspan::Engine::create(std::move(*parsed), communicator->communicator, device->device);
    if (!made.ok()) return fail(made.error(), error);
    *engine = new longspan_engine{std::move(*made)};
    return int32_t{LONGSPAN_OK};
  });
}

void longspan_engine_free(longspan_engine* engine) { delete engine; }

int32_t longspan_prepare(longspan_engine* engine, const char* problem, longspan_call** call,
                         longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({engine, problem, call})) return fail(invalid("an argument is NULL"), error);
    const auto parsed = longspan::parse_problem(problem);
    if (!parsed.ok()) {
      // The other ranks are waiting for this one: an invalid problem tells them.
      (void)engine->engine->prepare({}).ok();
      return fail(parsed.error(), error);
    }
    auto made = engine->engine->prepare(*parsed);
    if (!made.ok()) return fail(made.error(), error);
    *call = new longspan_call{std::move(*made)};
    return int32_t{LONGSPAN_OK};
  });
}

void longspan_call_free(longspan_call* call) { delete call; }

int64_t longspan_call_rows(const longspan_call* call, int32_t side) {
  return shard(call, side).rows;
}

int64_t longspan_call_batch(const longspan_call* call, int32_t side) {
  return shard(call, side).batch;
}

void longspan_call_indices(const longspan_call* call, int32_t side, int64_t* indices) {
  const auto& prepared = static_cast<const longspan::PreparedCall&>(*call->call);
  const longspan::Partition& partition = prepared.partition();
  const std::vector<int64_t> rows = side == LONGSPAN_KEY
                                        ? partition.k_indices(prepared.problem(), prepared.rank())
                                        : partition.q_indices(prepared.problem(), prepared.rank());
  std::copy(rows.begin(), rows.end(), indices);
}

size_t longspan_call_workspace_bytes(const longspan_call* call, int32_t direction) {
  return call->call->workspace_bytes(static_cast<longspan::Direction>(direction));
}

size_t longspan_call_saved_count(const longspan_call* call) { return own_buffers(call).size(); }

size_t longspan_call_saved_bytes(const longspan_call* call, size_t index) {
  const std::vector<longspan::BufferSpec> specs = own_buffers(call);
  if (index >= specs.size()) return 0;
  const longspan::BufferSpec& spec = specs[index];
  return static_cast<size_t>(spec.shape[0] * spec.shape[1] * spec.shape[2] *
                             longspan::size_of(spec.dtype));
}

int32_t longspan_forward(longspan_engine* engine, const longspan_call* call,
                         const longspan_tensor* q, const longspan_tensor* k,
                         const longspan_tensor* v, const longspan_tensor* o,
                         const longspan_tensor* lse, const longspan_sides* sides,
                         void* const* saved, void* workspace, size_t workspace_bytes,
                         longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({engine, call, q, k, v, o, lse}))
      return fail(invalid("an argument is NULL"), error);
    if (!known_dtypes({q, k, v, o, lse}) || !known_dtypes(sides)) {
      return fail(invalid("a dtype is unknown"), error);
    }
    longspan::Stream stream;
    longspan::ForwardOperands operands{view(*q), view(*k),   view(*v),
                                       view(*o), view(*lse), call->call->problem().scale};
    operands.side = side_operands(call, sides);
    if (sides != nullptr) operands.max_logit = view(sides->max_logit);
    return done(engine->engine->forward(*call->call, operands, saved_buffers(call, saved),
                                        {workspace, workspace_bytes}, stream),
                error);
  });
}

int32_t longspan_backward(longspan_engine* engine, const longspan_call* call,
                          const longspan_tensor* q, const longspan_tensor* k,
                          const longspan_tensor* v, const longspan_tensor* o,
                          const longspan_tensor* lse, const longspan_tensor* dout,
                          const longspan_tensor* dq, const longspan_tensor* dk,
                          const longspan_tensor* dv, const longspan_sides* sides,
                          void* const* saved, void* workspace, size_t workspace_bytes,
                          longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({engine, call, q, k, v, o, lse, dout, dq, dk, dv})) {
      return fail(invalid("an argument is NULL"), error);
    }
    if (!known_dtypes({q, k, v, o, lse, dout, dq, dk, dv}) || !known_dtypes(sides)) {
      return fail(invalid("a dtype is unknown"), error);
    }
    longspan::Stream stream;
    longspan::BackwardOperands operands{
        view(*q),    view(*k),  view(*v),  view(*o),  view(*lse),
        view(*dout), view(*dq), view(*dk), view(*dv), call->call->problem().scale};
    operands.side = side_operands(call, sides);
    if (sides != nullptr) {
      operands.dsink = view(sides->dsink);
      operands.dbias = view(sides->dbias);
    }
    return done(engine->engine->backward(*call->call, operands, saved_buffers(call, saved),
                                         {workspace, workspace_bytes}, stream),
                error);
  });
}
