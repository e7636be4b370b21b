#include "cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

namespace longspan::cuda {

void push_range(const char* name) { nvtxRangePushA(name); }
void pop_range() { nvtxRangePop(); }

}  // namespace longspan::cuda
