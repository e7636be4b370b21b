#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

/// A tile and where it stands. Heads are those of the range that is being covered.
struct Use {
  int32_t sequence = 0;
  int32_t rank = 0;
  StepId step = 0;
  const Tile* tile = nullptr;
};

/// The tile on the grid of every s-th query and key, s being the stride of the sequence's tiles.
struct Cell {
  int64_t q_residue = 0;
  int64_t k_residue = 0;
  int64_t q_begin = 0, q_end = 0;
  int64_t k_begin = 0, k_end = 0;
  const Use* use = nullptr;
};

/// Tokens that both have.
bool meet(Interval a, Interval b) {
  if (a.stride > b.stride || (a.stride == b.stride && a.begin > b.begin)) std::swap(a, b);
  if (a.stride == 1) {  // b has a token in [a.begin, a.end)?
    const int64_t first = std::max<int64_t>(0, (a.begin - b.begin + b.stride - 1) / b.stride);
    return first < b.size() && b.at(first) < a.end;
  }
  for (int64_t i = 0; i < b.size(); ++i) {
    const int64_t steps = b.at(i) - a.begin;
    if (steps >= 0 && steps % a.stride == 0 && steps / a.stride < a.size()) return true;
  }
  return false;
}

class Coverage {
 public:
  Coverage(const Setting& setting, std::span<const Schedule> schedules)
      : setting_(setting), schedules_(schedules) {}

  Status run() {
    const std::vector<int64_t> bounds = head_bounds();
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      LONGSPAN_CHECK_OK(cover(bounds[i], bounds[i + 1]));
    }
    return {};
  }

 private:
  std::vector<int64_t> head_bounds() const {
    std::vector<int64_t> bounds = {0, setting_.problem.heads_q};
    for (const Schedule& schedule : schedules_) {
      for (const Step& step : schedule.steps) {
        if (!is_attend(step.kind)) continue;
        const Buffer& q = buffer_of(schedule, step.q);
        bounds.push_back(q.head_begin);
        bounds.push_back(q.head_begin + q.heads);
      }
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return bounds;
  }

  /// All tiles that compute query head `head`, by sequence.
  std::vector<Use> uses_of(int64_t head) const {
    std::vector<Use> uses;
    for (const Schedule& schedule : schedules_) {
      const auto count = static_cast<StepId>(schedule.steps.size());
      for (StepId id = 0; id < count; ++id) {
        const Step& step = step_of(schedule, id);
        if (!is_attend(step.kind)) continue;
        const Buffer& q = buffer_of(schedule, step.q);
        if (head < q.head_begin || head >= q.head_begin + q.heads) continue;
        for (const Part& part : step.parts) {
          for (const PlacedTile& placed : part.tiles) {
            uses.push_back({placed.tile.sequence, schedule.rank, id, &placed.tile});
          }
        }
      }
    }
    const auto less = [](const Use& a, const Use& b) { return a.sequence < b.sequence; };
    if (!std::is_sorted(uses.begin(), uses.end(), less)) {
      std::sort(uses.begin(), uses.end(), less);
    }
    return uses;
  }

  Status cover(int64_t head, int64_t head_end) {
    const std::vector<Use> uses = uses_of(head);
    const std::vector<Sequence>& sequences = setting_.problem.lengths.sequences;
    size_t begin = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      size_t end = begin;
      int64_t pairs = 0;
      for (; end < uses.size() && static_cast<size_t>(uses[end].sequence) == s; ++end) {
        pairs += area(*uses[end].tile);
      }
      LONGSPAN_CHECK_OK(apart(std::span(uses).subspan(begin, end - begin)));
      const int64_t visible =
          setting_.problem.visible_pairs(static_cast<int64_t>(s), sequences[s].q_length);
      if (pairs != visible) {
        return Error{ErrorCode::kInternal,
                     fmt::format("{} {}: tiles of all ranks cover {} pairs of sequence {}, query "
                                 "heads [{}, {}), {} are visible",
                                 schedules_[0].strategy, name(schedules_[0].direction), pairs, s,
                                 head, head_end, visible),
                     "schedule"};
      }
      begin = end;
    }
    return {};
  }

  /// No two tiles share a pair.
  Status apart(std::span<const Use> uses) {
    if (uses.size() < 2) return {};
    int64_t stride = 1;
    for (const Use& use : uses) {
      for (const Interval& side : {use.tile->q, use.tile->k}) {
        if (side.size() > 1) stride = std::max(stride, side.stride);
      }
    }
    cells_.clear();
    for (const Use& use : uses) {
      const Tile& tile = *use.tile;
      const auto fits = [&](const Interval& i) { return i.size() == 1 || i.stride == stride; };
      if (!fits(tile.q) || !fits(tile.k)) return apart_pairwise(uses);
      const int64_t q = tile.q.begin / stride;
      const int64_t k = tile.k.begin / stride;
      cells_.push_back({tile.q.begin % stride, tile.k.begin % stride, q, q + tile.q.size(), k,
                        k + tile.k.size(), &use});
    }
    return apart_cells();
  }

  Status apart_cells() {
    std::sort(cells_.begin(), cells_.end(), [](const Cell& a, const Cell& b) {
      if (a.q_residue != b.q_residue) return a.q_residue < b.q_residue;
      if (a.k_residue != b.k_residue) return a.k_residue < b.k_residue;
      return a.q_begin < b.q_begin;
    });
    // `open_` holds disjoint key intervals in order; those whose queries have passed are dropped
    // when a newer one covers their keys.
    open_.clear();
    for (size_t i = 0; i < cells_.size(); ++i) {
      const Cell& cell = cells_[i];
      const bool same_grid = i > 0 && cells_[i - 1].q_residue == cell.q_residue &&
                             cells_[i - 1].k_residue == cell.k_residue;
      if (!same_grid) open_.clear();
      const auto first =
          std::upper_bound(open_.begin(), open_.end(), cell.k_begin,
                           [](int64_t k, const Cell& other) { return k < other.k_end; });
      auto last = first;
      for (; last != open_.end() && last->k_begin < cell.k_end; ++last) {
        if (last->q_end > cell.q_begin) return overlap(*last->use, *cell.use);
      }
      open_.insert(open_.erase(first, last), cell);
    }
    return {};
  }

  /// Strides of more than one kind: rare, so every pair is looked at.
  Status apart_pairwise(std::span<const Use> uses) const {
    for (size_t i = 0; i < uses.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const bool shared =
            meet(uses[i].tile->q, uses[j].tile->q) && meet(uses[i].tile->k, uses[j].tile->k);
        if (shared) return overlap(uses[j], uses[i]);
      }
    }
    return {};
  }

  Error overlap(const Use& a, const Use& b) const {
    const Schedule& schedule = schedules_[static_cast<size_t>(b.rank)];
    const Tile& tile = *b.tile;
    return defect(schedule, b.step, step_of(schedule, b.step).q,
                  fmt::format("tile of sequence {}, queries [{}, {}), keys [{}, {}), repeats pairs "
                              "of rank {}, step {}",
                              tile.sequence, tile.q.begin, tile.q.end, tile.k.begin, tile.k.end,
                              a.rank, a.step));
  }

  const Setting& setting_;
  std::span<const Schedule> schedules_;
  std::vector<Cell> cells_;
  std::vector<Cell> open_;
};

}  // namespace

Status check_coverage(const Setting& setting, std::span<const Schedule> schedules) {
  return Coverage(setting, schedules).run();
}

}  // namespace longspan::proof
