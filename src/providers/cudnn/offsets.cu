#include "cuda/device_view.cuh"
#include "cuda/runtime.h"
#include "providers/cudnn/cut.h"
#include "providers/cudnn/offsets.h"

namespace longspan::cudnn {
namespace {

using cuda::DeviceView;

constexpr int kThreads = 256;

struct RaggedView {
  DeviceView view;
  int64_t first, width;
  bool in_place, keys;
};

struct OffsetParameters {
  EntryList list;
  RaggedView tensors[9];
  int64_t batch;
  int64_t* tables;
  int64_t table_size;
  const EntryTokens* tokens;
  const int32_t *given_q, *given_k;
  DeviceEntry* entries;
  int32_t *lengths_q, *lengths_k;
};

__device__ void write_cut(const OffsetParameters& p, int64_t index) {
  EntryRows rows;
  if (index < p.list.count) {
    DeviceEntry e = p.list.entries[index];
    const EntryTokens& tokens = p.tokens[index];
    rows = cut({e.nq, e.nk}, tokens, p.given_q[tokens.sequence], p.given_k[tokens.sequence]);
    e.nq = rows.nq;
    e.nk = rows.nk;
    p.entries[index] = e;
  }
  p.lengths_q[index] = static_cast<int32_t>(rows.nq);
  p.lengths_k[index] = static_cast<int32_t>(rows.nk);
}

__global__ void __launch_bounds__(kThreads)
    offsets_kernel(const __grid_constant__ OffsetParameters p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index > p.batch) return;
  if (p.tokens != nullptr && blockIdx.y == 0 && index < p.batch) write_cut(p, index);
  const bool behind = index >= p.list.count;  // an empty entry starts where the last one ends
  const DeviceEntry& e = p.list.entries[behind ? p.list.count - 1 : index];
  const RaggedView& t = p.tensors[blockIdx.y];
  const int64_t rows = t.keys ? e.nk : e.nq;
  const int64_t begin = t.keys ? e.k_begin : e.q_begin;
  const int64_t row = t.keys ? e.k_row : e.q_row;
  int64_t offset = (begin + (behind ? rows : 0)) * t.width;
  if (t.in_place && behind) {
    offset = t.view.offset(row + rows - 1, 0) + t.view.stride_seq - t.first;
  } else if (t.in_place) {
    offset = t.view.offset(row, 0) - t.first;
  }
  p.tables[blockIdx.y * p.table_size + index] = offset;
}

}  // namespace

Status write_offsets(const OffsetTables& t, Stream stream) {
  OffsetParameters p = {.list = t.list,
                        .batch = t.batch,
                        .tables = t.tables,
                        .table_size = offset_table_size(t.batch),
                        .tokens = t.cutting.tokens,
                        .given_q = t.cutting.lengths.q.data(),
                        .given_k = t.cutting.lengths.k.data(),
                        .entries = t.cutting.entries,
                        .lengths_q = t.cutting.lengths_q,
                        .lengths_k = t.cutting.lengths_k};
  for (size_t i = 0; i < t.tensors.size(); ++i) {
    const RaggedTensor& tensor = t.tensors[i];
    p.tensors[i] = {.view = cuda::device_view(tensor.view),
                    .first = tensor.first,
                    .width = tensor.width,
                    .in_place = tensor.view.rows() > 0,
                    .keys = tensor.keys};
  }
  const dim3 grid(static_cast<unsigned>(t.batch / kThreads + 1),
                  static_cast<unsigned>(t.tensors.size()));
  offsets_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(p);
  return cuda::status(cudaGetLastError(), "launching offsets for cuDNN");
}

}  // namespace longspan::cudnn
