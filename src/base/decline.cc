#include "longspan/decline.h"

namespace longspan {

std::string_view name(DeclineCode code) {
  switch (code) {
    case DeclineCode::kDType: return "dtype";
    case DeclineCode::kHeadDim: return "head_dim";
    case DeclineCode::kHeads: return "heads";
    case DeclineCode::kMask: return "mask";
    case DeclineCode::kLayout: return "layout";
    case DeclineCode::kLengths: return "lengths";
    case DeclineCode::kCapacity: return "capacity";
    case DeclineCode::kDirection: return "direction";
    case DeclineCode::kPartials: return "partials";
    case DeclineCode::kWhole: return "whole";
    case DeclineCode::kRanks: return "ranks";
    case DeclineCode::kTopology: return "topology";
    case DeclineCode::kStrategy: return "strategy";
    case DeclineCode::kWindow: return "window";
    case DeclineCode::kSoftcap: return "softcap";
    case DeclineCode::kAlibi: return "alibi";
    case DeclineCode::kBias: return "bias";
    case DeclineCode::kSink: return "sink";
    case DeclineCode::kDropout: return "dropout";
    case DeclineCode::kPage: return "page";
    case DeclineCode::kFp8: return "fp8";
    case DeclineCode::kDeterministic: return "deterministic";
    case DeclineCode::kInvariant: return "invariant";
    case DeclineCode::kMaxLogit: return "max_logit";
    case DeclineCode::kModification: return "modification";
    case DeclineCode::kDeviceLengths: return "device_lengths";
    case DeclineCode::kDevice: return "device";
    case DeclineCode::kPull: return "pull";
    case DeclineCode::kNotPrepared: return "not_prepared";
    case DeclineCode::kNotBuilt: return "not_built";
    case DeclineCode::kOff: return "off";
  }
  return "";
}

}  // namespace longspan
