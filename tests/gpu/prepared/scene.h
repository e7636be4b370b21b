// prepared on the device against cpu/reference on the host.
#pragma once

#include <cstdint>

#include "gpu/cudnn/against_host.h"

namespace longspan::testing {

/// What its own backward is given besides LSE.
enum class Given { kDelta, kO };

/// The device's part, from empty results.
void compute_prepared(const Case& c, const Inputs& in, Given given, bool backward, Compared& r);

/// Fails where a row of a tile is further from the exact one than the bar of GPUs times `factor`,
/// or, where results are whole, a row of no tile was written.
void expect_right(const Case& c, const Compared& r, bool backward, double factor);

/// Both directions, partial and whole, backward from delta and from O.
void check_prepared(Case c, uint64_t seed, double factor = 1);
/// Forward alone, partial and whole.
void check_forward(Case c, uint64_t seed, double factor = 1);

}  // namespace longspan::testing
