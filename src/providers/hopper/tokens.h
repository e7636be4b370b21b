// Where the tokens of a tile, or of a part of it, lie in their sequence.
#pragma once

#include "base/host_device.h"
#include "providers/cuda/tile_table.h"
#include "providers/hopper/work.h"

namespace longspan::hopper {

Tokens tokens_of(const cuda::TableTile& tile);

/// Those of the part that begins with query `q` and key `k`.
LONGSPAN_HOST_DEVICE inline Tokens tokens_from(Tokens tokens, int64_t q, int64_t k) {
  tokens.distance += q * tokens.q_stride - k * tokens.k_stride;
  tokens.q_begin += static_cast<uint32_t>(q * tokens.q_stride);
  tokens.k_begin += static_cast<uint32_t>(k * tokens.k_stride);
  return tokens;
}

}  // namespace longspan::hopper
