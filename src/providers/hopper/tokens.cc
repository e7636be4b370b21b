#include "providers/hopper/tokens.h"

namespace longspan::hopper {

Tokens tokens_of(const cuda::TableTile& t) {
  return {.distance = t.q_begin + t.shift - t.k_begin,
          .q_begin = static_cast<uint32_t>(t.q_begin),
          .k_begin = static_cast<uint32_t>(t.k_begin),
          .q_stride = static_cast<int32_t>(t.q_stride),
          .k_stride = static_cast<int32_t>(t.k_stride),
          .sequence = static_cast<uint32_t>(t.sequence)};
}

}  // namespace longspan::hopper
