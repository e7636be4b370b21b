// The sink logit in O and LSE, and its gradient.
#include "cuda/row_units.cuh"

namespace longspan::cuda {
namespace {

__device__ double sink_of(const DeviceView& sink, int64_t head) {
  return sink.data == nullptr ? 0 : sink.load(0, head, 0);
}

/// Whether the token of a row is there in this call.
__device__ bool is_there(const RowParameters& p, const RowUnit& u) {
  if (p.lengths == nullptr) return true;
  const int64_t token = u.item.token + (u.dst_row - u.item.dst_row) * u.item.token_step;
  return token < p.lengths[u.item.sequence];
}

template <class T>
__device__ void sink_row(const RowParameters& p, const DeviceView& o, const DeviceView& lse,
                         const RowUnit& u, int lane) {
  const double logit = sink_of(p.third, p.head_begin + u.src_head);
  const double before = lse.load(u.dst_row, u.dst_head, 0);
  const double top = before > logit ? before : logit;
  if (top == -INFINITY) return;
  const double total = exp(before - top) + exp(logit - top);
  const T keep = static_cast<T>(exp(before - top) / total);
  T* const values = o.at<T>(u.src_row, u.src_head);
  for (int32_t i = lane; i < o.dim; i += kWarp) values[i] *= keep;
  __syncwarp();
  if (lane == 0) lse.store(u.dst_row, u.dst_head, 0, top + log(total));
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    sink_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [&p](const RowUnit& u, const DeviceView& o, const DeviceView& lse, int lane) {
    if (is_there(p, u)) sink_row<T>(p, o, lse, u, lane);
  });
}

/// One block a head: threads take rows in turn, then add up in a fixed tree.
__global__ void __launch_bounds__(kRowThreads)
    sink_gradient_kernel(const __grid_constant__ RowParameters p, DeviceView dsink) {
  __shared__ double sums[kRowThreads];
  const DeviceView& lse = p.views[0];
  const DeviceView& delta = p.views[1];
  const double logit = sink_of(p.third, p.head_begin + blockIdx.x);
  double sum = 0;
  for (int64_t row = threadIdx.x; row < p.rows; row += kRowThreads) {
    const RowUnit u = row_unit(p, row, 0);
    const double statistic = lse.load(u.src_row, blockIdx.x, 0);
    if (!isinf(statistic)) sum += exp(logit - statistic) * delta.load(u.dst_row, blockIdx.x, 0);
  }
  sums[threadIdx.x] = sum;
  for (int step = kRowThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x != 0) return;
  const int64_t head = p.head_begin + blockIdx.x;
  dsink.store(0, head, 0, dsink.load(0, head, 0) - sums[0]);
}

}  // namespace

void launch_sinks(const RowParameters& p, dim3 blocks, cudaStream_t stream) {
  const bool wide = p.views[0].dtype == DType::kF64;  // O and LSE have one type
  const auto kernel = wide ? sink_kernel<double> : sink_kernel<float>;
  kernel<<<blocks, kRowThreads, 0, stream>>>(p);
}

void launch_sink_gradient(const RowParameters& p, int heads, const DeviceView& dsink,
                          cudaStream_t stream) {
  sink_gradient_kernel<<<heads, kRowThreads, 0, stream>>>(p, dsink);
}

}  // namespace longspan::cuda
