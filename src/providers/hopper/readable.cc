#include "providers/hopper/readable.h"

#include <algorithm>

#include "providers/hopper/maps.h"
#include "providers/rows/views.h"

namespace longspan::hopper {
namespace {

bool any_crosses(const TensorView& view, std::span<const PlacedTile> tiles, bool keys) {
  if (even(view)) return false;
  return std::any_of(tiles.begin(), tiles.end(), [&](const PlacedTile& t) {
    const int64_t first = keys ? t.k_row : t.q_row;
    return crosses(view, first, first + (keys ? t.tile.k.size() : t.tile.q.size()));
  });
}

}  // namespace

bool in_place(const TensorView& view, std::span<const PlacedTile> tiles, bool keys) {
  return mappable(view) && !any_crosses(view, tiles, keys);
}

Result<TensorView> readable(const TensorView& view, int64_t capacity,
                            std::span<const PlacedTile> tiles, bool keys, bool negated,
                            void* scratch, Stream stream) {
  if (!negated && in_place(view, tiles, keys)) return view;
  const int64_t count = std::min(view.rows(), capacity);
  LONGSPAN_CHECK_OK(rows::pack_view(view, {0, count}, scratch, negated, stream));
  return packed_view(scratch, view.dtype, count, view.heads, view.dim);
}

}  // namespace longspan::hopper
