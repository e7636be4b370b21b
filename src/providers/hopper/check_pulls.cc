#include "providers/hopper/check_pulls.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "longspan/loan.h"
#include "providers/hopper/staged.h"

namespace longspan::hopper {
namespace {

/// Begin and end of gathered rows, joined where they touch.
using Ranges = std::map<int64_t, int64_t>;

bool may_lend(int rank) { return rank == kOwnRows || (rank >= 0 && rank < kMostLenders); }

Result<Ranges> ranges_of(std::vector<Pull> pulls) {
  std::ranges::sort(pulls, {}, &Pull::dst_row);
  Ranges ranges;
  int64_t end = 0;
  for (const Pull& p : pulls) {
    if (p.rows == 0) continue;
    if (!may_lend(p.lender) || p.rows < 0 || p.src_row < 0 || p.dst_row < end) {
      return invalid(
          fmt::format("a pull of {} rows, from row {} of lender {} to row {}: lenders are 0 to {}, "
                      "or {} for own rows, and rows below {} are taken",
                      p.rows, p.src_row, p.lender, p.dst_row, kMostLenders - 1, kOwnRows, end));
    }
    const bool touches = !ranges.empty() && p.dst_row == end;
    end = p.dst_row + p.rows;
    (touches ? std::prev(ranges.end())->second : ranges[p.dst_row]) = end;
  }
  return ranges;
}

}  // namespace

Status check_pulls(std::span<const PlacedTile> tiles, std::span<const Pull> pulls) {
  LONGSPAN_TRY(const Ranges ranges, ranges_of({pulls.begin(), pulls.end()}));
  for (const PlacedTile& t : tiles) {
    const int64_t end = t.k_row + t.tile.k.size();
    if (t.tile.q.size() == 0 || end == t.k_row) continue;
    const auto after = ranges.upper_bound(t.k_row);
    if (after != ranges.begin() && std::prev(after)->second >= end) continue;
    return invalid(fmt::format("key rows [{}, {}) of a tile: pull each of them", t.k_row, end));
  }
  return {};
}

}  // namespace longspan::hopper
