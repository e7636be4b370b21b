// Refusals as values: a Decline means "cannot", and says which limit met which value.
#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace longspan {

enum class DeclineCode {
  kDType,
  kHeadDim,
  kHeads,
  kMask,
  kLayout,
  kLengths,
  kCapacity,
  kDirection,
  kPartials,  // 16-bit partial results where FP32 ones are required
  kWhole,     // results written instead of merged and added
  kRanks,
  kTopology,  // nodes and ranks do not fit the strategy
  kStrategy,
  kWindow,
  kSoftcap,
  kAlibi,
  kBias,
  kSink,
  kDropout,
  kPage,
  kFp8,
  kDeterministic,
  kInvariant,
  kMaxLogit,
  kModification,
  kDeviceLengths,
  kDevice,
  kPull,         // keys and values that a launch brings itself
  kNotPrepared,  // no build in the store; the detail has the command that makes one
  kNotBuilt,     // not compiled in; the detail names the CMake option
  kOff,          // barred by routing
};

std::string_view name(DeclineCode code);  // "dtype", "head_dim", ...

struct Decline {
  DeclineCode code = DeclineCode::kStrategy;
  std::string detail;
};

/// A promise to compute the problem: a failure afterwards is an error, never a silent fallback.
struct Offer {
  std::string detail;           // how, in a few words
  bool partials_16bit = false;  // O and gradients leave the provider rounded to 16 bits
};

using Verdict = std::variant<Offer, Decline>;

inline const Decline* declined(const Verdict& verdict) { return std::get_if<Decline>(&verdict); }

/// A Decline with the name of the one who declined, as it travels to explain, JSON and errors.
struct NamedDecline {
  std::string name;
  std::string direction;  // "forward" or "backward"
  Decline decline;
};

}  // namespace longspan
