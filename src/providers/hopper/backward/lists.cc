#include "providers/hopper/backward/lists.h"

#include <algorithm>

#include "providers/hopper/backward/order.h"
#include "providers/hopper/tokens.h"
#include "providers/rules.h"

namespace longspan::hopper {
namespace {

int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

/// `rows` of a tile as far as they lie in `part`, counted from its first one.
Range inside(Range rows, Range part) {
  const int64_t first = std::max(rows.first, part.first), last = std::min(rows.last, part.last);
  return first < last ? Range{first - part.first, last - part.first} : Range{};
}

Range blocks_of(Range rows) {
  if (rows.first == rows.last) return {};
  return {rows.first / kBlockSide, (rows.last - 1) / kBlockSide + 1};
}

class ListMaker {
 public:
  ListMaker(const TileProblem& problem, const Chunk& chunk, const GradientColumns& columns)
      : problem_(problem), chunk_(chunk), columns_(columns) {}

  void add(const Part& part) {
    const PlacedTile& t = part.tile;
    const int64_t shift = part.q.first - part.k.first;
    lists_.regions.push_back({.q_row = narrow(t.q_row + part.q.first),
                              .k_row = narrow(t.k_row + part.k.first),
                              .queries = narrow(part.q.last - part.q.first),
                              .keys = narrow(part.k.last - part.k.first),
                              .lo = edge(std::max(t.tile.band.lo, -kUnbounded) + shift),
                              .hi = edge(std::min(t.tile.band.hi, kUnbounded) + shift),
                              .line = narrow(static_cast<int64_t>(lists_.lines.size()))});
    lists_.tokens.push_back(
        tokens_from(tokens_of(cuda::table_tile(t)), part.q.first, part.k.first));
    add_scores(part);
    add_query_gradients(part);
    add_key_gradients(part);
  }

  Lists finish() {
    order_gradients(problem_, chunk_, lists_);
    order_values(chunk_, lists_);
    return std::move(lists_);
  }

 private:
  int32_t region() const { return narrow(static_cast<int64_t>(lists_.regions.size()) - 1); }

  /// Lines of blocks, and their units: four lines at a time, so that the keys of a unit are read
  /// from L2 by the next ones.
  void add_scores(const Part& part) {
    constexpr int64_t kLinesTogether = 4;
    std::vector<Range> seen;  // units of each line
    for (int64_t q = part.q.first; q < part.q.last; q += kUnitQueries) {
      const Range keys = inside(
          seen_keys(part.tile, {q, std::min<int64_t>(q + kUnitQueries, part.q.last)}), part.k);
      const bool sees = keys.first < keys.last;
      seen.push_back(sees ? Range{keys.first / kUnitKeys, (keys.last - 1) / kUnitKeys + 1}
                          : Range{});
      add_line(seen.back());
    }
    if (sums_values(problem_)) return;
    const auto lines = static_cast<int64_t>(seen.size());
    for (int64_t first = 0; first < lines; first += kLinesTogether) {
      add_items(seen, {first, std::min(first + kLinesTogether, lines)});
    }
  }

  void add_line(Range units) {
    const int64_t count = units.last - units.first;
    lists_.lines.push_back({.first = narrow(lists_.head_blocks - units.first * kUnitColumns),
                            .pitch = narrow(count * kUnitColumns)});
    lists_.head_blocks += narrow(count * kUnitBlocks);
  }

  void add_items(const std::vector<Range>& seen, Range lines) {
    Range all = seen[static_cast<size_t>(lines.first)];
    for (int64_t i = lines.first; i < lines.last; ++i) {
      const Range& units = seen[static_cast<size_t>(i)];
      if (units.first == units.last) continue;
      if (all.first == all.last) all = units;
      all = {std::min(all.first, units.first), std::max(all.last, units.last)};
    }
    for (int64_t column = all.first; column < all.last; ++column) {
      for (int64_t i = lines.first; i < lines.last; ++i) {
        const Range& units = seen[static_cast<size_t>(i)];
        if (column < units.first || column >= units.last) continue;
        lists_.scores.push_back({region(), narrow(i), narrow(column)});
      }
    }
  }

  /// `item` of every part of `dim` columns, unless it would leave everything as it is.
  void push(GradientItem item, int64_t dim, int64_t part_columns) {
    if (steps_of(item) == 0 && !item.ends && item.adds) return;
    const int64_t parts = (dim + part_columns - 1) / part_columns;
    for (item.part = 0; item.part < parts; ++item.part) lists_.gradients.push_back(item);
  }

  void add_query_gradients(const Part& part) {
    const bool whole = problem_.features.whole;
    for (int64_t q = part.q.first; q < part.q.last; q += kGradientRows) {
      const Range seen =
          seen_keys(part.tile, {q, std::min<int64_t>(q + kGradientRows, part.q.last)});
      const Range keys = inside(seen, part.k);
      const bool nothing = seen.first == seen.last;
      if (nothing ? !whole || part.k.first > 0 : keys.first == keys.last) continue;
      const Range blocks = blocks_of(keys);
      GradientItem item{.region = region(),
                        .gradient = Gradient::kDq,
                        .tile = narrow((q - part.q.first) / kGradientRows),
                        .first = narrow(blocks.first),
                        .last = narrow(blocks.last),
                        .adds = !whole || (!nothing && seen.first < part.k.first),
                        .ends = whole && seen.last <= part.k.last};
      for (int64_t head = 0; head < chunk_.heads.last - chunk_.heads.first; ++head) {
        item.head = item.first_head = narrow(head);
        item.last_head = narrow(head + 1);
        push(item, problem_.dim_qk, columns_.all);
      }
    }
  }

  void add_key_gradients(const Part& part) {
    const bool whole = problem_.features.whole;
    for (int64_t k = part.k.first; k < part.k.last; k += kGradientRows) {
      const Range seen =
          seeing_queries(part.tile, {k, std::min<int64_t>(k + kGradientRows, part.k.last)});
      const Range queries = inside(seen, part.q);
      const bool nothing = seen.first == seen.last;
      const bool first = part.q.first == 0 && chunk_.first_heads;
      if (nothing ? !whole || !first : queries.first == queries.last) continue;
      const Range blocks = blocks_of(queries);
      const bool adds = seen.first < part.q.first || !chunk_.first_heads;
      const bool ends = seen.last <= part.q.last && chunk_.last_heads;
      GradientItem item{.region = region(),
                        .tile = narrow((k - part.k.first) / kGradientRows),
                        .first = narrow(blocks.first),
                        .last = narrow(blocks.last),
                        .adds = !whole || (!nothing && adds),
                        .ends = whole && (nothing || ends)};
      push_key_heads(item);
    }
  }

  void push_key_heads(GradientItem item) {
    for (int64_t head = chunk_.key_heads.first; head < chunk_.key_heads.last; ++head) {
      const Range heads = inside(query_heads(problem_, head), chunk_.heads);
      item.head = narrow(head - chunk_.key_heads.first);
      item.first_head = narrow(heads.first);
      item.last_head = narrow(heads.last);
      item.gradient = Gradient::kDk;
      push(item, problem_.dim_qk, columns_.all);
      item.gradient = Gradient::kDv;
      if (!sums_values(problem_)) {
        push(item, problem_.dim_v, columns_.values);
      } else if (steps_of(item) > 0 || item.ends || !item.adds) {
        lists_.values.push_back(item);
      }
    }
  }

  const TileProblem& problem_;
  const Chunk& chunk_;
  GradientColumns columns_;
  Lists lists_;
};

}  // namespace

int64_t steps_of(const GradientItem& item) {
  return int64_t{item.last - item.first} * (item.last_head - item.first_head);
}

Lists make_lists(const TileProblem& problem, const Parts& parts, const Chunk& chunk,
                 const GradientColumns& columns) {
  ListMaker maker(problem, chunk, columns);
  for (const Part& part : parts) maker.add(part);
  return maker.finish();
}

}  // namespace longspan::hopper
