#include "providers/prepared/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace longspan::prepared {
namespace {

using rows::Entry;

/// Pieces of one sight whose rows ascend.
struct Bin {
  Sight sight;
  std::vector<Entry> entries;

  bool takes(const Piece& p, bool one_of_each) const {
    const Entry& last = entries.back();
    if (one_of_each && p.rows.tokens.sequence == last.tokens.sequence) return false;
    return p.sight == sight && p.rows.q_row >= last.q_row + last.nq &&
           p.rows.k_row >= last.k_row + last.nk;
  }
};

/// `one_of_each`: a bin has one piece of a sequence at most, so that pieces of sequences which lie
/// alike are alike in every bin.
std::vector<Bin> make_bins(std::span<const Piece> pieces, bool one_of_each) {
  std::vector<Bin> bins;
  for (const Piece& p : pieces) {
    const auto taker =
        std::ranges::find_if(bins, [&](const Bin& b) { return b.takes(p, one_of_each); });
    if (taker == bins.end()) {
      bins.push_back({p.sight, {p.rows}});
    } else {
      taker->entries.push_back(p.rows);
    }
  }
  return bins;
}

bool alike(std::span<const Entry> entries) {
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const Entry& before = entries[i - 1];
    if (e.nq != before.nq || e.nk != before.nk) return false;
    if (e.q_row - before.q_row != entries[1].q_row - entries[0].q_row) return false;
    if (e.k_row - before.k_row != entries[1].k_row - entries[0].k_row) return false;
  }
  return true;
}

/// Makes the launches of one bin.
class Maker {
 public:
  Maker(const TileProblem& problem, const Builds& builds, const Bin& bin)
      : problem_(problem), builds_(builds), bin_(bin) {}

  Status append_to(std::vector<Launch>& launches) const {
    const bool batched = builds_.engine() == Engine::kFa4;
    const std::span<const Entry> entries = bin_.entries;
    const bool packed = batched && !alike(entries) && find(true, entries[0]) != nullptr;
    for (size_t begin = 0; begin < entries.size();) {
      const bool together = packed || (batched && alike(entries));
      LONGSPAN_TRY(Launch launch, made(packed, entries.subspan(begin, 1)));
      if (together) grow(launch, entries.subspan(begin + 1));
      begin += launch.entries.size();
      launches.push_back(std::move(launch));
    }
    return {};
  }

 private:
  const Kernel* find(bool packed, const Entry& e) const {
    return builds_.find({bin_.sight.shape, packed, e.nq, e.nk});
  }
  Result<Launch> made(bool packed, std::span<const Entry> entries) const {
    const Kernel* const kernel = find(packed, entries[0]);
    if (kernel != nullptr) {
      return Launch{kernel, bin_.sight, packed, {entries.begin(), entries.end()}};
    }
    return Error{ErrorCode::kInternal,
                 fmt::format("no {} build for {} x {} rows", name(bin_.sight.shape), entries[0].nq,
                             entries[0].nk),
                 "prepared"};
  }
  /// Adds entries while they fit.
  void grow(Launch& launch, std::span<const Entry> rest) const {
    const Manifest& m = launch.kernel->manifest();
    int64_t q = launch.rows_q(), k = launch.rows_k();
    for (const Entry& e : rest) {
      const auto count = static_cast<int64_t>(launch.entries.size()) + 1;
      q += e.nq;
      k += e.nk;
      const bool fits = count <= kMostEntries &&
                        padded_rows(q, count, m.tile_q, launch.packed) <=
                            most_padded_rows(problem_.capacity_q, m.tile_q, launch.packed) &&
                        padded_rows(k, count, m.tile_k, launch.packed) <=
                            most_padded_rows(problem_.capacity_k, m.tile_k, launch.packed);
      if (!fits) return;
      launch.entries.push_back(e);
    }
  }

  const TileProblem& problem_;
  const Builds& builds_;
  const Bin& bin_;
};

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t total(std::span<const Entry> entries, int64_t Entry::*rows) {
  return std::accumulate(entries.begin(), entries.end(), int64_t{0},
                         [&](int64_t sum, const Entry& e) { return sum + e.*rows; });
}

Result<std::vector<Launch>> launches_of(const TileProblem& problem, const Builds& builds,
                                        const std::vector<Bin>& bins) {
  std::vector<Launch> launches;
  for (const Bin& bin : bins) {
    LONGSPAN_CHECK_OK(Maker(problem, builds, bin).append_to(launches));
  }
  return launches;
}

/// In launches: a packed one mostly needs copies of its rows before and after.
int64_t cost(std::span<const Launch> launches) {
  const auto packed = std::ranges::count_if(launches, &Launch::packed);
  return static_cast<int64_t>(launches.size()) + 2 * packed;
}

}  // namespace

int64_t Launch::rows_q() const { return total(entries, &Entry::nq); }
int64_t Launch::rows_k() const { return total(entries, &Entry::nk); }

int64_t padded_rows(int64_t rows, int64_t entries, int64_t tile, bool packed) {
  if (packed) return (rows + (entries + 1) * tile - 1) / tile * tile;
  return entries * round_up(rows / entries, tile);
}

int64_t most_padded_rows(int64_t capacity, int64_t tile, bool packed) {
  constexpr int64_t kShortEntries = 64;
  const int64_t room = packed ? std::min(capacity, kShortEntries * tile) : 0;
  return round_up(capacity + std::max(capacity / 8, room), tile) + 2 * tile;
}

Result<std::vector<Launch>> make_launches(const TileProblem& problem, const Builds& builds,
                                          std::span<const Piece> pieces) {
  LONGSPAN_TRY(std::vector<Launch> mixed, launches_of(problem, builds, make_bins(pieces, false)));
  LONGSPAN_TRY(std::vector<Launch> apart, launches_of(problem, builds, make_bins(pieces, true)));
  return cost(apart) < cost(mixed) ? std::move(apart) : std::move(mixed);
}

}  // namespace longspan::prepared
