// The strategies, one file each.
#pragma once

#include "longspan/schedule.h"

namespace longspan {

extern const Strategy kRing;
extern const Strategy kAllGather;
extern const Strategy kAllToAll;
extern const Strategy kHybrid;
extern const Strategy kHeadParallel;

}  // namespace longspan
