// Named ranges of host time, which profilers show (NVTX). Without one they cost a few nanoseconds.
#pragma once

namespace longspan::cuda {

void push_range(const char* name);
void pop_range();

}  // namespace longspan::cuda
