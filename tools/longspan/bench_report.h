// What a benchmark says, as JSON. Times are microseconds.
#pragma once

#include "bench_group.h"
#include "outcome.h"

namespace longspan::tool {

/// Device time of each iteration, host time of each call, wall time of an iteration:
/// {"forward_us":[],"backward_us":[],"host_us":{"forward":[],"backward":[]},"wall_us"}.
/// backward is null in forward alone.
Json slice_json(const Slice& slice);

/// {"pass","relative_rms":{tensor: figure},"failed":[text]}
Json check_json(const BenchCheck& check);

/// What one iteration did, summed or rank by rank.
struct BenchAudit {
  std::vector<int64_t> attend_launches, fills, bytes_forward, bytes_backward;
};

/// Who computes, with what memory, and what one iteration did.
Json audit_json(const BenchGroup& group, const BenchAudit& audit);

/// Middle of the values, of an even number the mean of the middle two. Not of none.
double median(std::vector<double> values);
/// Forward and backward together, of each iteration.
std::vector<double> totals(const Slice& slice);

}  // namespace longspan::tool
