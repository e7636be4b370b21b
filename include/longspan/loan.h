// Memory of one rank that kernels of another read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longspan {

/// What a borrower gets of a lender. Words are of 32 bits and lie in device memory: the kernel
/// reads `data` once *ready, its own device's, is positive. When it has read all it sets *ready to
/// 0 and then *done, the lender's, to 1 (a release for the whole system).
struct Loan {
  const void* data = nullptr;
  uint32_t* ready = nullptr;
  uint32_t* done = nullptr;
};

/// The other side of a loan, for a lender's own launch: at its start it sets *ready, the
/// borrower's, to 1 (a release for the whole system), and before its end it waits until *done, its
/// own, is positive, and sets it to 0.
struct Lent {
  uint32_t* ready = nullptr;
  uint32_t* done = nullptr;
};

/// Words of Loans::counters.
inline constexpr size_t kLoanCounters = 64;

/// The loans that a launch takes and gives.
struct Loans {
  std::span<const Loan> borrowed;
  std::span<const Lent> lent;  // those that the launch itself tells of
  /// Words of its own device, this launch's alone: 0 before it, and again after it. May be null.
  uint32_t* counters = nullptr;
};

/// Ranks that one rank may borrow of in a call, or lend to.
inline constexpr int kMostLenders = 16;

}  // namespace longspan
