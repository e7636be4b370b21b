#include "providers/cudnn/graph.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "providers/cudnn/handles.h"
#include "providers/cudnn/library.h"

// Other libraries of the process may hold other versions of these inline functions. System headers
// stand above so that their symbols stay visible.
#pragma GCC visibility push(hidden)
#include <cudnn_frontend.h>
#pragma GCC visibility pop

void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace longspan::cudnn {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

constexpr int kCapability = 90;
// The others are for other chips, or answer some graphs wrongly.
constexpr fe::HeurMode_t kHeuristic = fe::HeurMode_t::A;

int64_t uid(Slot slot) { return static_cast<int64_t>(slot) + 1; }

struct Extents {
  int64_t heads = 0, rows = 0, dim = 0;
};

/// Describes a graph to cudnn-frontend, which changes tensors of a graph: none is shared.
class Builder {
 public:
  explicit Builder(const GraphKey& key) : key_(key) {
    const bool bf16 = key.dtype == DType::kBF16;
    graph_->set_io_data_type(bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(kCapability);
    const TensorPointer q = input(Slot::kQ, query(key.dim_qk));
    const TensorPointer k = input(Slot::kK, keys(key.dim_qk));
    const TensorPointer v = input(Slot::kV, keys(key.dim_v));
    key.direction == Direction::kForward ? forward(q, k, v) : backward(q, k, v);
  }
  std::unique_ptr<fe::graph::Graph> take() { return std::move(graph_); }

 private:
  Extents query(int64_t dim) const { return {key_.heads_q, key_.sq, dim}; }
  Extents keys(int64_t dim) const { return {key_.heads_kv, key_.skv, dim}; }

  TensorPointer small(Slot slot, int64_t count, fe::DataType_t type) {
    return graph_->tensor(Tensor_attributes()
                              .set_uid(uid(slot))
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(type));
  }
  void describe(Tensor_attributes& tensor, Slot slot, Extents e) {
    const Strides& strides = key_.strides[slot];
    tensor.set_uid(uid(slot))
        .set_dim({key_.batch, e.heads, e.rows, e.dim})
        .set_stride({strides.batch, strides.head, strides.row, 1});
    if (key_.ragged) {
      tensor.set_ragged_offset(small(offsets_of(slot), key_.batch + 1, fe::DataType_t::INT64));
    }
  }
  TensorPointer input(Slot slot, Extents e) {
    Tensor_attributes tensor;
    describe(tensor, slot, e);
    return graph_->tensor(tensor);
  }
  void output(const TensorPointer& tensor, Slot slot, Extents e) {
    describe(*tensor, slot, e);
    tensor->set_output(true);
  }

  /// Of pairs, `width` elements from a row to the next.
  TensorPointer pairs(Slot slot, const BiasShape& shape, int64_t width) {
    return graph_->tensor(
        Tensor_attributes()
            .set_uid(uid(slot))
            .set_dim({1, shape.heads, shape.rows, key_.skv})
            .set_stride({shape.heads * shape.rows * width, shape.rows * width, width, 1}));
  }

  template <class Options>
  void common(Options& options) {
    options.set_attn_scale(graph_->tensor(Tensor_attributes()
                                              .set_uid(uid(Slot::kScale))
                                              .set_dim({1, 1, 1, 1})
                                              .set_stride({1, 1, 1, 1})
                                              .set_data_type(fe::DataType_t::FLOAT)
                                              .set_is_pass_by_value(true)));
    const Mask& mask = key_.mask;
    if (mask.left) options.set_diagonal_band_left_bound(static_cast<int>(*mask.left));
    if (mask.right) options.set_diagonal_band_right_bound(static_cast<int>(*mask.right));
    if (mask.left || mask.right) {
      options.set_diagonal_alignment(mask.bottom_right ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                       : fe::DiagonalAlignment_t::TOP_LEFT);
    }
    if (key_.bias.heads > 0) options.set_bias(pairs(Slot::kBias, key_.bias, bias_width(key_.skv)));
    if (!key_.padded) return;
    options.set_padding_mask(true)
        .set_seq_len_q(small(Slot::kLengthsQ, key_.batch, fe::DataType_t::INT32))
        .set_seq_len_kv(small(Slot::kLengthsK, key_.batch, fe::DataType_t::INT32));
  }

  void forward(const TensorPointer& q, const TensorPointer& k, const TensorPointer& v) {
    auto options = fe::graph::SDPA_attributes().set_name("attend").set_generate_stats(true);
    common(options);
    const auto [o, stats] = graph_->sdpa(q, k, v, options);
    output(o, Slot::kO, query(key_.dim_v));
    output(stats, Slot::kStats, query(1));
    stats->set_data_type(fe::DataType_t::FLOAT);
  }

  void backward(const TensorPointer& q, const TensorPointer& k, const TensorPointer& v) {
    const TensorPointer o = input(Slot::kO, query(key_.dim_v));
    const TensorPointer dout = input(Slot::kDout, query(key_.dim_v));
    const TensorPointer stats = input(Slot::kStats, query(1));
    stats->set_data_type(fe::DataType_t::FLOAT);
    auto options = fe::graph::SDPA_backward_attributes().set_name("attend_backward");
    common(options);
    options.set_deterministic_algorithm(key_.deterministic);
    if (key_.bias.heads > 0) {
      options.set_dbias(pairs(Slot::kDbias, {key_.heads_q, key_.sq}, key_.skv));
    }
    if (key_.total_q > 0) options.set_max_total_seq_len_q(key_.total_q);
    if (key_.total_k > 0) options.set_max_total_seq_len_kv(key_.total_k);
    const auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, o, dout, stats, options);
    output(dq, Slot::kDq, query(key_.dim_qk));
    output(dk, Slot::kDk, keys(key_.dim_qk));
    output(dv, Slot::kDv, keys(key_.dim_v));
  }

  const GraphKey& key_;
  std::unique_ptr<fe::graph::Graph> graph_ = std::make_unique<fe::graph::Graph>();
};

Status checked(fe::error_t error, const char* what, const GraphKey& key) {
  if (error.is_good()) return {};
  return Error{ErrorCode::kDriver, fmt::format("{}: {} ({})", what, error.get_message(), text(key)),
               "cudnn"};
}

/// cudnn-frontend throws where the library lacks a symbol.
template <class Run>
auto guarded(Run&& run) -> decltype(run()) {
  try {
    LONGSPAN_TRY(const Library* const cudnn, library());
    static std::once_flag once;
    std::call_once(once, [&] { fe::cudnn_dlhandle = cudnn->handle; });
    return run();
  } catch (const std::exception& thrown) {
    return Error{ErrorCode::kDriver, fmt::format("cudnn-frontend: {}", thrown.what()), "cudnn"};
  }
}

class BuiltGraph final : public Graph {
 public:
  static Result<std::shared_ptr<const Graph>> build(const GraphKey& key);

  size_t workspace_bytes() const override { return workspace_bytes_; }
  const std::string& plan_name() const override { return plan_name_; }

  Status execute(const Arguments& arguments, void* workspace, Stream stream) const override {
    return guarded([&]() -> Status {
      LONGSPAN_TRY(const HandleLease lease, HandleLease::take(key_.ordinal));
      const auto handle = static_cast<cudnnHandle_t>(lease.get());
      const auto code = fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream.handle));
      if (code != CUDNN_STATUS_SUCCESS) {
        return Error{ErrorCode::kDriver, fe::detail::get_error_string(code), "cudnn"};
      }
      std::array<void*, kSlots> pointers;
      for (size_t i = 0; i < slots_.size(); ++i) {
        pointers[i] = arguments.pointers[static_cast<size_t>(slots_[i])];
      }
      return checked(
          graph_->execute(handle, pointers.data(), static_cast<int>(slots_.size()), workspace),
          "executing", key_);
    });
  }

 private:
  Status prepare(cudnnHandle_t handle);

  GraphKey key_;
  std::unique_ptr<fe::graph::Graph> graph_;
  std::vector<int> slots_;  // tensors that the plan reads and writes, in cudnn-frontend's order
  size_t workspace_bytes_ = 0;
  std::string plan_name_;
};

Status BuiltGraph::prepare(cudnnHandle_t handle) {
  graph_ = Builder(key_).take();
  LONGSPAN_CHECK_OK(checked(graph_->validate(), "validating", key_));
  LONGSPAN_CHECK_OK(checked(graph_->build_operation_graph(handle), "describing", key_));
  LONGSPAN_CHECK_OK(checked(graph_->create_execution_plans({kHeuristic}), "planning", key_));
  LONGSPAN_CHECK_OK(checked(graph_->check_support(), "checking", key_));
  LONGSPAN_CHECK_OK(checked(graph_->build_plans(), "compiling", key_));
  int64_t bytes = 0;
  LONGSPAN_CHECK_OK(checked(graph_->get_workspace_size(bytes), "measuring", key_));
  LONGSPAN_CHECK_OK(checked(graph_->get_plan_name(plan_name_), "naming", key_));
  workspace_bytes_ = static_cast<size_t>(bytes);
  for (const int64_t id : graph_->get_variant_pack_uids_sorted()) {
    if (id < 1 || id > kSlots) {
      return Error{ErrorCode::kInternal,
                   fmt::format("cudnn-frontend asks for tensor {} ({})", id, text(key_)), "cudnn"};
    }
    slots_.push_back(static_cast<int>(id) - 1);
  }
  return {};
}

Result<std::shared_ptr<const Graph>> BuiltGraph::build(const GraphKey& key) {
  LONGSPAN_TRY(const HandleLease lease, HandleLease::take(key.ordinal));
  auto built = std::make_shared<BuiltGraph>();
  built->key_ = key;
  LONGSPAN_CHECK_OK(built->prepare(static_cast<cudnnHandle_t>(lease.get())));
  return std::shared_ptr<const Graph>(std::move(built));
}

}  // namespace

Result<std::shared_ptr<const Graph>> build_graph(const GraphKey& key) {
  return guarded([&] { return BuiltGraph::build(key); });
}

Result<Support> check_support(const GraphKey& key, std::string_view properties,
                              int64_t most_engine_bytes) {
  return guarded([&]() -> Result<Support> {
    const auto device = std::make_shared<fe::DeviceProperties>();
    LONGSPAN_CHECK_OK(checked(device->deserialize({properties.begin(), properties.end()}),
                              "reading device properties", key));
    const auto graph = Builder(key).take();
    graph->set_device_properties(device);
    graph->deselect_workspace_greater_than(most_engine_bytes);
    const auto refused = [](fe::error_t error) -> std::optional<Support> {
      if (error.is_good()) return std::nullopt;
      return Support{.message = error.get_message()};
    };
    if (auto answer = refused(graph->validate())) return *answer;
    if (auto answer = refused(graph->build_operation_graph())) return *answer;
    if (auto answer = refused(graph->create_execution_plans({kHeuristic}))) return *answer;
    if (auto answer = refused(graph->check_support())) return *answer;
    Support result{.accepted = true};
    LONGSPAN_CHECK_OK(checked(graph->get_plan_name_at_index(0, result.plan_name), "naming", key));
    return result;
  });
}

Result<std::string> device_properties(int ordinal) {
  return guarded([&]() -> Result<std::string> {
    fe::DeviceProperties device;
    std::vector<uint8_t> bytes;
    fe::error_t error = device.set_device_id(ordinal).build();
    if (error.is_good()) error = device.serialize(bytes);
    if (error.is_good()) return std::string(bytes.begin(), bytes.end());
    return Error{ErrorCode::kDriver, error.get_message(), "cudnn"};
  });
}

}  // namespace longspan::cudnn
