#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

/// Token at `row`, which the run holds.
int64_t token_at(const Run& run, int64_t row) { return run.tokens.at(row - run.row); }

/// How many of `rows` rows from `row` in steps of `step` the run holds.
int64_t rows_inside(const Run& run, int64_t row, int64_t step, int64_t rows) {
  const int64_t left = run.row + run.valid - row;
  return std::min(rows, step == 1 ? left : (left + step - 1) / step);
}

class Contents {
 public:
  Contents(const Setting& setting, const Schedule& schedule)
      : setting_(setting), schedule_(schedule), finder_(schedule), layouts_(layouts(schedule)) {}

  Status run() {
    const auto count = static_cast<StepId>(schedule_.steps.size());
    for (step_ = 0; step_ < count; ++step_) {
      const Step& step = step_of(schedule_, step_);
      for (const Copy& copy : step.copies) {
        LONGSPAN_CHECK_OK(check_copy(copy.src, copy));
        // dout lies as o does.
        if (step.kind == StepKind::kDelta && !same_layout(step.o, step.dout)) {
          LONGSPAN_CHECK_OK(check_copy(step.dout, copy));
        }
      }
      if (is_attend(step.kind)) LONGSPAN_CHECK_OK(check_attend(step));
    }
    return {};
  }

 private:
  /// Buffers of equal runs get equal numbers, so that rows are looked up once for all of them.
  static std::vector<int32_t> layouts(const Schedule& schedule) {
    std::vector<int32_t> result(schedule.buffers.size());
    std::vector<BufferId> first;  // of each number
    for (size_t i = 0; i < result.size(); ++i) {
      const std::vector<Run>& runs = schedule.buffers[i].runs;
      const auto same = [&](BufferId id) { return buffer_of(schedule, id).runs == runs; };
      const auto known = std::find_if(first.begin(), first.end(), same);
      result[i] = static_cast<int32_t>(known - first.begin());
      if (known == first.end()) first.push_back(static_cast<BufferId>(i));
    }
    return result;
  }

  bool same_layout(BufferId a, BufferId b) const {
    return layouts_[static_cast<size_t>(a)] == layouts_[static_cast<size_t>(b)];
  }

  /// Every row goes where the same token is declared.
  Status check_copy(BufferId from, const Copy& copy) {
    int64_t done = 0;
    while (done < copy.rows) {
      const int64_t src_row = copy.src_row + done * copy.src_step;
      const int64_t dst_row = copy.dst_row + done * copy.dst_step;
      const Run* src = finder_.find(from, src_row);
      if (src == nullptr) return no_token(from, src_row);
      const Run* dst = finder_.find(copy.dst, dst_row);
      if (dst == nullptr) return no_token(copy.dst, dst_row);
      const int64_t rows = rows_inside(*dst, dst_row, copy.dst_step,
                                       rows_inside(*src, src_row, copy.src_step, copy.rows - done));
      const bool pace =
          rows == 1 || copy.src_step * src->tokens.stride == copy.dst_step * dst->tokens.stride;
      const bool start = token_at(*src, src_row) == token_at(*dst, dst_row);
      if (src->sequence != dst->sequence || !start || !pace) {
        return defect(
            schedule_, step_, copy.dst,
            fmt::format("row {} is for token {} of sequence {}, row {} of \"{}\" holds "
                        "token {} of sequence {}",
                        dst_row, token_at(*dst, dst_row), dst->sequence, src_row,
                        buffer_of(schedule_, from).name, token_at(*src, src_row), src->sequence));
      }
      done += rows;
    }
    return {};
  }

  Error no_token(BufferId id, int64_t row) const {
    return defect(schedule_, step_, id, fmt::format("row {} holds no token", row));
  }

  Status check_attend(const Step& step) {
    const BufferId queries[] = {step.q, step.o, step.lse, step.dout, step.delta, step.dq};
    for (const Part& part : step.parts) {
      for (const PlacedTile& placed : part.tiles) LONGSPAN_CHECK_OK(check_tile(placed));
      LONGSPAN_CHECK_OK(check_rows(queries, part, true));
      LONGSPAN_CHECK_OK(check_rows({{part.k, part.v, part.dk, part.dv}}, part, false));
    }
    return {};
  }

  Status check_rows(std::span<const BufferId> buffers, const Part& part, bool queries) {
    std::vector<int32_t> seen;
    for (const BufferId id : buffers) {
      if (id == kNone) continue;
      const int32_t layout = layouts_[static_cast<size_t>(id)];
      if (std::find(seen.begin(), seen.end(), layout) != seen.end()) continue;
      seen.push_back(layout);
      for (const PlacedTile& placed : part.tiles) {
        const Interval tokens = queries ? placed.tile.q : placed.tile.k;
        const int64_t row = queries ? placed.q_row : placed.k_row;
        LONGSPAN_CHECK_OK(check_interval(id, placed.tile.sequence, tokens, row));
      }
    }
    return {};
  }

  /// `row` and the rows behind it hold `tokens`.
  Status check_interval(BufferId id, int32_t sequence, Interval tokens, int64_t row) {
    const int64_t size = tokens.size();
    int64_t done = 0;
    while (done < size) {
      const Run* run = finder_.find(id, row + done);
      if (run == nullptr) return no_token(id, row + done);
      const int64_t rows = rows_inside(*run, row + done, 1, size - done);
      const bool pace = rows == 1 || run->tokens.stride == tokens.stride;
      if (run->sequence != sequence || token_at(*run, row + done) != tokens.at(done) || !pace) {
        return defect(schedule_, step_, id,
                      fmt::format("row {} holds token {} of sequence {}, a tile takes it as token "
                                  "{} of sequence {}",
                                  row + done, token_at(*run, row + done), run->sequence,
                                  tokens.at(done), sequence));
      }
      done += rows;
    }
    return {};
  }

  /// The band of the mask tile that holds the tile.
  std::optional<Band> mask_of(const Tile& tile) const {
    const Range numbers = setting_.problem.mask_tiles(tile.sequence, tile.q);
    for (int64_t number = numbers.first; number < numbers.last; ++number) {
      const MaskTile mask = setting_.problem.mask_tile(tile.sequence, number);
      const auto inside = [](Interval part, Interval whole) {
        return part.begin >= whole.begin && part.at(part.size() - 1) < whole.end;
      };
      if (inside(tile.q, mask.q) && inside(tile.k, mask.k)) return mask.band;
    }
    return std::nullopt;
  }

  Status check_tile(const PlacedTile& placed) const {
    const Tile& tile = placed.tile;
    const Problem& problem = setting_.problem;
    const std::vector<Sequence>& sequences = problem.lengths.sequences;
    if (tile.sequence < 0 || static_cast<size_t>(tile.sequence) >= sequences.size()) {
      return defect(schedule_, step_, kNone,
                    fmt::format("tile of unknown sequence {}", tile.sequence));
    }
    const auto canonical = [](Interval interval) {
      return interval.stride >= 1 && interval.size() > 0 &&
             interval.end == interval.begin + interval.size() * interval.stride;
    };
    if (!canonical(tile.q) || !canonical(tile.k)) return bad_tile(tile, "is not canonical");
    const int64_t nq = tile.q.size();
    const int64_t nk = tile.k.size();
    if (nq > 1 && nk > 1 && tile.q.stride != tile.k.stride) {
      return bad_tile(tile, "has strides that differ");
    }
    if (placed.shift != problem.shift(sequences[static_cast<size_t>(tile.sequence)])) {
      return bad_tile(tile, fmt::format("has shift {}, not the sequence's", placed.shift));
    }
    const std::optional<Band> mask = mask_of(tile);
    if (!mask) return bad_tile(tile, "lies in no tile of the mask");
    const Band band = cut(*mask, tile.q, tile.k);
    // Offsets between the indices lie in [1 - nq, nk - 1]; edges beyond that are the same.
    const bool lo = std::max(band.lo, 1 - nq) == std::max(tile.band.lo, 1 - nq);
    const bool hi = std::min(band.hi, nk - 1) == std::min(tile.band.hi, nk - 1);
    if (!lo || !hi) {
      return bad_tile(tile, fmt::format("has band [{}, {}], the mask gives [{}, {}]", tile.band.lo,
                                        tile.band.hi, band.lo, band.hi));
    }
    if (empty(band, nq, nk)) return bad_tile(tile, "is empty");
    return {};
  }

  Error bad_tile(const Tile& tile, std::string_view what) const {
    return defect(
        schedule_, step_, kNone,
        fmt::format("tile of sequence {}, queries [{}, {}) by {}, keys [{}, {}) by {}, {}",
                    tile.sequence, tile.q.begin, tile.q.end, tile.q.stride, tile.k.begin,
                    tile.k.end, tile.k.stride, what));
  }

  const Setting& setting_;
  const Schedule& schedule_;
  RunFinder finder_;
  std::vector<int32_t> layouts_;
  StepId step_ = 0;
};

}  // namespace

Status check_contents(const Setting& setting, const Schedule& schedule) {
  return Contents(setting, schedule).run();
}

}  // namespace longspan::proof
