// Memory of one rank that kernels of another read.
#pragma once

#include <cstdint>

namespace longspan {

/// What a borrower gets of a lender. Words are of 32 bits and lie in device memory: the kernel
/// reads `data` once *ready, its own device's, is positive. When it has read all it sets *ready to
/// 0 and then *done, the lender's, to 1 (a release for the whole system).
struct Loan {
  const void* data = nullptr;
  uint32_t* ready = nullptr;
  uint32_t* done = nullptr;
};

/// Ranks that one rank may borrow of in a call.
inline constexpr int kMostLenders = 16;

}  // namespace longspan
