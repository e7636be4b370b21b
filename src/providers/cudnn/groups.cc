#include "providers/cudnn/groups.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/pieces.h"

namespace longspan::cudnn {
namespace {

constexpr int64_t kShortest = 128;    // rows of cuDNN's blocks
constexpr int64_t kMostGrid = 32768;  // entries x heads of one launch

/// One edge of a band that several entries share: entries that it cuts fix it, the others bound it.
class SharedEdge {
 public:
  bool admits(bool cuts, int64_t value) const {
    if (!cuts) return !fixed_ || *fixed_ >= value;
    return (!fixed_ || *fixed_ == value) && value >= least_;
  }
  void add(bool cuts, int64_t value) {
    if (cuts) {
      fixed_ = value;
    } else {
      least_ = std::max(least_, value);
    }
  }
  const std::optional<int64_t>& fixed() const { return fixed_; }

 private:
  std::optional<int64_t> fixed_;
  int64_t least_ = -kUnbounded;
};

/// A band counted from one corner of every entry. An edge that cuts nothing stands where it would
/// begin to.
class SharedBand {
 public:
  explicit SharedBand(bool bottom_right) : bottom_right_(bottom_right) {}
  bool admits(const Piece& p) const {
    return left_.admits(p.cuts_left(), left(p)) && right_.admits(p.cuts_right(), right(p));
  }
  void add(const Piece& p) {
    left_.add(p.cuts_left(), left(p));
    right_.add(p.cuts_right(), right(p));
  }
  Mask mask() const {
    Mask mask{.right = right_.fixed(), .bottom_right = bottom_right_};
    if (left_.fixed()) mask.left = *left_.fixed() + 1;
    if (!mask.left && !mask.right) mask.bottom_right = false;
    return mask;
  }

 private:
  int64_t shift(const Piece& p) const { return bottom_right_ ? p.rows.nk - p.rows.nq : 0; }
  int64_t left(const Piece& p) const {
    return (p.cuts_left() ? -p.band.lo : p.rows.nq - 1) + shift(p);
  }
  int64_t right(const Piece& p) const {
    return (p.cuts_right() ? p.band.hi : p.rows.nk - 1) - shift(p);
  }

  bool bottom_right_;
  SharedEdge left_, right_;
};

/// Entries within a factor of four: a launch has blocks for the longest of them.
int size_class(int64_t rows) {
  return (std::bit_width(static_cast<uint64_t>(std::max(rows, kShortest) - 1)) + 1) / 2;
}

/// Pieces that one mask serves.
class Bin {
 public:
  Bin(const TileProblem& problem, const Piece& first) : piece_(first) {
    // Backward skips hidden blocks only when it counts from the top left. Where lengths come with
    // the call, so would the bottom right.
    const bool backward = problem.direction == Direction::kBackward;
    const bool biased = problem.features.bias != Bias::kNone;  // refused at the bottom right
    if (backward || biased || problem.features.device_lengths) fits_[1] = false;
    add(first);
  }

  bool take(const Piece& p) {
    const Entry& last = entries_.back();
    if (p.rows.q_row < last.q_row + last.nq || p.rows.k_row < last.k_row + last.nk) return false;
    if (size_class(p.rows.nq) != size_class(piece_.rows.nq)) return false;
    if (size_class(p.rows.nk) != size_class(piece_.rows.nk)) return false;
    const bool first = fits_[0] && bands_[0].admits(p);
    const bool second = fits_[1] && bands_[1].admits(p);
    if (!first && !second) return false;
    fits_[0] = first;
    fits_[1] = second;
    add(p);
    return true;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  Mask mask() const { return bands_[fits_[0] ? 0 : 1].mask(); }
  /// Whether all entries are alike and lie at equal distances.
  bool uniform() const {
    for (size_t i = 1; i < entries_.size(); ++i) {
      const Entry& e = entries_[i];
      const Entry& before = entries_[i - 1];
      if (e.nq != before.nq || e.nk != before.nk) return false;
      if (e.q_row - before.q_row != entries_[1].q_row - entries_[0].q_row) return false;
      if (e.k_row - before.k_row != entries_[1].k_row - entries_[0].k_row) return false;
    }
    return true;
  }

 private:
  void add(const Piece& p) {
    for (SharedBand& band : bands_) band.add(p);
    entries_.push_back(p.rows);
  }

  Piece piece_;
  std::vector<Entry> entries_;
  SharedBand bands_[2] = {SharedBand(false), SharedBand(true)};
  bool fits_[2] = {true, true};
};

bool one_by_one(const Entry& e) { return e.nq == 1 && e.nk == 1; }

/// Where cuDNN needs true lengths although nothing is padded.
bool needs_lengths(const TileProblem& p, const Group& g) {
  if (g.mask.left && g.sq > g.skv) return true;  // refused without
  if (p.direction == Direction::kForward || g.mask.right) return false;
  if (p.dim_qk == 192 && p.dim_v == 128) return true;  // 1.6 times as fast
  if (g.mask.left) return false;
  // NaN in dq, or in dk and dv, of rows with a very negative LSE (fixed in cuDNN 9.26).
  return g.skv % 128 == 64 || g.sq == 1;
}

void declare(const TileProblem& p, Group& g) {
  const auto count = static_cast<int64_t>(g.entries.size());
  if (!g.ragged) {
    g.batch = count;
    g.sq = g.entries[0].nq;
    g.skv = g.entries[0].nk;
    g.padded = needs_lengths(p, g);
    return;
  }
  g.padded = true;
  g.batch = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  g.sq = g.skv = 0;
  for (const Entry& e : g.entries) {
    g.sq = std::max(g.sq, length_bucket(e.nq));
    g.skv = std::max(g.skv, length_bucket(e.nk));
  }
  if (p.direction == Direction::kForward || !bounds_totals(p)) return;
  // Whole results stay where they are, rows of other groups between them.
  const bool whole = p.features.whole;
  const int64_t rows_q = whole ? g.span_q() : g.rows_q();
  const int64_t rows_k = whole ? g.span_k() : g.rows_k();
  g.total_q = std::min(length_bucket(rows_q), rows_bucket(p.capacity_q));
  g.total_k = std::min(length_bucket(rows_k), rows_bucket(p.capacity_k));
}

bool fits_launch(const TileProblem& p, const Group& g, int64_t budget) {
  return g.batch <= kMostEntries && g.batch * p.heads_q <= kMostGrid &&
         cudnn_bytes(p, g).total() <= budget;
}

/// The entries in as few launches as workspace and grid allow.
void append_launches(const TileProblem& p, const Mask& mask, bool ragged,
                     std::span<const Entry> entries, std::vector<Group>& groups) {
  const int64_t budget = cudnn_budget(p);
  for (size_t begin = 0; begin < entries.size();) {
    size_t count = entries.size() - begin;
    Group group;
    while (true) {
      const std::span<const Entry> part = entries.subspan(begin, count);
      group = {.mask = mask, .ragged = ragged, .entries = {part.begin(), part.end()}};
      declare(p, group);
      if (count == 1 || fits_launch(p, group, budget)) break;
      count = (count + 1) / 2;
    }
    groups.push_back(std::move(group));
    begin += count;
  }
}

}  // namespace

int64_t Group::rows_q() const {
  int64_t rows = 0;
  for (const Entry& e : entries) rows += e.nq;
  return rows;
}

int64_t Group::rows_k() const {
  int64_t rows = 0;
  for (const Entry& e : entries) rows += e.nk;
  return rows;
}

int64_t Group::span_q() const {
  return entries.back().q_row + entries.back().nq - entries.front().q_row;
}

int64_t Group::span_k() const {
  return entries.back().k_row + entries.back().nk - entries.front().k_row;
}

rows::Blanks blanks_of(const TileProblem& problem, std::span<const PlacedTile> tiles,
                       std::span<const Group> groups) {
  std::vector<Entry> written;
  for (const Group& g : groups) written.insert(written.end(), g.entries.begin(), g.entries.end());
  const bool added = std::ranges::any_of(groups, [](const Group& g) { return g.adds_dq; });
  return rows::blanks_of(problem, tiles, written, added);
}

bool bounds_totals(const TileProblem& p) {
  return p.dim_qk % 16 == 0 && p.dim_v % 16 == 0 && !writes_scores(p);
}

int64_t length_bucket(int64_t length) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(length, kShortest))));
}

int64_t rows_bucket(int64_t rows) {
  const int64_t least = std::max(rows, kShortest);
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(least))) / 8;
  return (least + step - 1) / step * step;
}

std::vector<Group> make_groups(const TileProblem& problem, std::span<const PlacedTile> tiles) {
  const std::vector<Piece> pieces = make_pieces(problem, tiles);
  const bool biased = problem.features.bias != Bias::kNone;
  std::vector<Bin> bins;
  for (const Piece& piece : pieces) {
    const auto taker =
        biased ? bins.end()
               : std::find_if(bins.begin(), bins.end(), [&](Bin& b) { return b.take(piece); });
    if (taker == bins.end()) bins.emplace_back(problem, piece);
  }
  const bool packed = tiles.size() > kFewTiles;
  const bool backward = problem.direction == Direction::kBackward;
  const bool may_rag = !biased && (!backward || bounds_totals(problem));
  std::vector<Group> groups;
  for (const Bin& bin : bins) {
    const std::vector<Entry>& entries = bin.entries();
    // cuDNN refuses one row against one key in backward unless both are declared longer.
    const bool smallest = backward && bin.uniform() && one_by_one(entries[0]);
    const bool alike = !problem.features.device_lengths && bin.uniform() && !smallest &&
                       (entries.size() > 1 || !packed || !may_rag);
    if (alike) {
      append_launches(problem, bin.mask(), false, entries, groups);
    } else if (may_rag || smallest) {
      append_launches(problem, bin.mask(), true, entries, groups);
    } else {
      for (const Entry& e : entries) {
        append_launches(problem, bin.mask(), one_by_one(e), {&e, 1}, groups);
      }
    }
  }
  const bool parts =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.part; });
  for (Group& g : groups) g.adds_dq = problem.features.whole && parts;
  return groups;
}

}  // namespace longspan::cudnn
