#include "gpu/cudnn/direct_graph.h"

#include <cudnn_frontend.h>

#include <cmath>
#include <stdexcept>

namespace longspan::testing {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

void must(fe::error_t error) {
  if (!error.is_good()) throw std::runtime_error(error.get_message());
}

class Sdpa final : public DirectGraph {
 public:
  Sdpa(const DirectShape& shape, double scale) : shape_(shape), scale_(static_cast<float>(scale)) {
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS)
      throw std::runtime_error("no handle");
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    shape.direction == Direction::kForward ? forward() : backward();
    must(graph_.validate());
    must(graph_.build_operation_graph(handle_));
    must(graph_.create_execution_plans({fe::HeurMode_t::A}));
    must(graph_.check_support());
    must(graph_.build_plans());
    must(graph_.get_workspace_size(workspace_bytes_));
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(workspace_bytes_); }

  void execute(const DirectTensors& tensors, void* workspace, Stream stream) override {
    fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream.handle));
    const size_t count = shape_.direction == Direction::kForward ? 5 : 9;
    DirectTensors pointers = tensors;
    must(graph_.execute(handle_, pointers.data(), static_cast<int>(count), workspace));
  }

 private:
  Tensor_attributes described(int64_t place, int64_t heads, int64_t dim) const {
    return Tensor_attributes()
        .set_uid(place + 1)
        .set_dim({1, heads, shape_.rows, dim})
        .set_stride({shape_.rows * heads * dim, dim, heads * dim, 1});
  }
  std::shared_ptr<Tensor_attributes> input(int64_t place, int64_t heads, int64_t dim) {
    return graph_.tensor(described(place, heads, dim));
  }
  void output(Tensor_attributes& tensor, int64_t place, int64_t heads, int64_t dim) const {
    tensor.set_output(true)
        .set_uid(place + 1)
        .set_dim({1, heads, shape_.rows, dim})
        .set_stride({shape_.rows * heads * dim, dim, heads * dim, 1});
  }
  template <class Options>
  void common(Options& options) const {
    options.set_attn_scale(scale_);
    if (!shape_.causal) return;
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }

  void forward() {
    const DirectShape& s = shape_;
    auto options = fe::graph::SDPA_attributes().set_name("attend").set_generate_stats(true);
    common(options);
    const auto [o, lse] = graph_.sdpa(input(0, s.heads_q, s.dim_qk), input(1, s.heads_kv, s.dim_qk),
                                      input(2, s.heads_kv, s.dim_v), options);
    output(*o, 3, s.heads_q, s.dim_v);
    output(*lse, 4, s.heads_q, 1);
    lse->set_data_type(fe::DataType_t::FLOAT);
  }
  void backward() {
    const DirectShape& s = shape_;
    auto options = fe::graph::SDPA_backward_attributes().set_name("attend_backward");
    common(options);
    const auto lse = input(4, s.heads_q, 1);
    lse->set_data_type(fe::DataType_t::FLOAT);
    const auto [dq, dk, dv] =
        graph_.sdpa_backward(input(0, s.heads_q, s.dim_qk), input(1, s.heads_kv, s.dim_qk),
                             input(2, s.heads_kv, s.dim_v), input(3, s.heads_q, s.dim_v),
                             input(5, s.heads_q, s.dim_v), lse, options);
    output(*dq, 6, s.heads_q, s.dim_qk);
    output(*dk, 7, s.heads_kv, s.dim_qk);
    output(*dv, 8, s.heads_kv, s.dim_v);
  }

  DirectShape shape_;
  float scale_;
  cudnnHandle_t handle_ = nullptr;  // never destroyed: the driver may be gone before it is
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<DirectGraph> make_direct_graph(const DirectShape& shape, double scale) {
  return std::make_unique<Sdpa>(shape, scale);
}

}  // namespace longspan::testing
