#include <cuda_runtime_api.h>

#include "cuda/runtime.h"
#include "providers/rows/views.h"

namespace longspan::rows {
namespace {

constexpr int kThreads = 256;
constexpr int kOctet = 8;  // elements of a thread

struct PackParameters {
  RowView from;
  const int32_t* pages;  // the entry of `from` that stands for each seq rows; null: they follow
  uint4* to;
  int32_t first_row;
  int64_t octets;    // of all rows
  uint32_t per_row;  // octets of a row of one head
  uint32_t heads;
  uint32_t flipped;  // bits of two elements
  bool wide;         // whether an octet may be read in one access
};

__device__ const uint16_t* place(const PackParameters& p, int32_t row, int32_t head) {
  if (p.pages == nullptr) return p.from.at<uint16_t>(row, head);
  RowView page = p.from;
  page.data += p.pages[row / page.seq] * page.stride_batch * int64_t{sizeof(uint16_t)};
  return page.at<uint16_t>(row % page.seq, head);
}

__global__ void __launch_bounds__(kThreads)
    pack_view_kernel(const __grid_constant__ PackParameters p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.octets) return;
  const int64_t unit = index / p.per_row;
  const auto octet = static_cast<int32_t>(index - unit * p.per_row);
  const auto row = static_cast<int32_t>(unit / p.heads);
  const auto head = static_cast<int32_t>(unit - int64_t{row} * p.heads);
  const uint16_t* const from = place(p, p.first_row + row, head) + octet * kOctet;
  uint4 words;
  if (p.wide) {
    words = *reinterpret_cast<const uint4*>(from);
  } else {
    const auto pair = [&](int i) {
      return from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
    };
    words = {pair(0), pair(1), pair(2), pair(3)};
  }
  p.to[index] = {words.x ^ p.flipped, words.y ^ p.flipped, words.z ^ p.flipped,
                 words.w ^ p.flipped};
}

}  // namespace

Status load_pack_view() {
  cudaFuncAttributes attributes;
  return cuda::status(cudaFuncGetAttributes(&attributes, pack_view_kernel),
                      "loading the packing of a view");
}

Status pack_view(const TensorView& from, Range rows, void* to, bool negated, Stream stream) {
  const int64_t per_row = from.dim / kOctet;
  const PackParameters p = {.from = row_view(from),
                            .pages = from.pages,
                            .to = static_cast<uint4*>(to),
                            .first_row = static_cast<int32_t>(rows.first),
                            .octets = (rows.last - rows.first) * from.heads * per_row,
                            .per_row = static_cast<uint32_t>(per_row),
                            .heads = static_cast<uint32_t>(from.heads),
                            .flipped = negated ? 0x80008000u : 0u,
                            .wide = aligned(from, 16)};
  if (p.octets == 0) return {};
  const auto blocks = static_cast<unsigned>((p.octets + kThreads - 1) / kThreads);
  pack_view_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(p);
  return cuda::status(cudaGetLastError(), "launching the packing of a view");
}

}  // namespace longspan::rows
