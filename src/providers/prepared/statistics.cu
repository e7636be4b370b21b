#include <cuda_runtime_api.h>

#include "cuda/runtime.h"
#include "providers/prepared/statistics.h"

namespace longspan::prepared {
namespace {

constexpr int kTile = 32;
constexpr int kLanes = 8;  // lines of a tile that a block moves at a time

/// Each batch entry of `from` is [height, width], that of `to` [width, height]. Blocks along x are
/// those of the rows, whose number is not limited to 65535: they cut `height` where `tall`.
__global__ void transpose(const float* from, float* to, int64_t height, int64_t width, bool tall) {
  __shared__ float tile[kTile][kTile + 1];
  const int64_t entry = int64_t{blockIdx.z} * height * width;
  const int64_t x = int64_t{tall ? blockIdx.y : blockIdx.x} * kTile;
  const int64_t y = int64_t{tall ? blockIdx.x : blockIdx.y} * kTile;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kLanes) {
    if (y + i < height && x + lane < width) {
      tile[i][lane] = from[entry + (y + i) * width + x + lane];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kLanes) {
    if (x + i < width && y + lane < height) {
      to[entry + (x + i) * height + y + lane] = tile[lane][i];
    }
  }
}

Status launch(const Statistics& s, bool tall, Stream stream) {
  const auto blocks = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  const dim3 grid(blocks(s.rows), blocks(s.heads), static_cast<unsigned>(s.batch));
  transpose<<<grid, dim3(kTile, kLanes), 0, static_cast<cudaStream_t>(stream.handle)>>>(
      s.from, s.to, tall ? s.rows : s.heads, tall ? s.heads : s.rows, tall);
  return cuda::status(cudaGetLastError(), "turning statistics");
}

}  // namespace

Status rows_of_heads(const Statistics& s, Stream stream) { return launch(s, false, stream); }
Status heads_of_rows(const Statistics& s, Stream stream) { return launch(s, true, stream); }

}  // namespace longspan::prepared
