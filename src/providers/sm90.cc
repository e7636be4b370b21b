#include "providers/sm90.h"

#include <fmt/format.h>

#include <string>

namespace longspan::sm90 {

std::optional<Decline> refused_device(const Device& device) {
  if (!device.is_cuda()) {
    return Decline{DeclineCode::kDevice,
                   fmt::format("device {} is not cuda: name a GPU, or {}", device.name, kOthers)};
  }
  if (device.capability == 90) return std::nullopt;
  return Decline{DeclineCode::kDevice,
                 fmt::format("compute capability {}.{} of {} is not 9.0; {}",
                             device.capability / 10, device.capability % 10, device.name, kOthers)};
}

std::optional<Decline> refused_features(const Features& f, std::string_view provider) {
  const auto refused = [&](DeclineCode code, std::string_view what) {
    return Decline{code, fmt::format("{} is not offered by {}; {} or remove it from the problem",
                                     what, provider, kOthers)};
  };
  if (f.softcap) return refused(DeclineCode::kSoftcap, "softcap");
  if (f.alibi) return refused(DeclineCode::kAlibi, "alibi");
  if (f.bias != Bias::kNone) return refused(DeclineCode::kBias, "bias");
  if (f.dropout) return refused(DeclineCode::kDropout, "dropout");
  if (f.modification) return refused(DeclineCode::kModification, "a modification");
  if (f.paged) return refused(DeclineCode::kPage, "page");
  if (f.max_logit) return refused(DeclineCode::kMaxLogit, "max_logit");
  if (f.device_lengths) return refused(DeclineCode::kDeviceLengths, "device_lengths");
  return std::nullopt;
}

Status inside(const TileProblem& p, std::span<const PlacedTile> tiles, std::string_view provider) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    const PlacedTile& t = tiles[i];
    const int64_t end_q = t.q_row + t.tile.q.size();
    const int64_t end_k = t.k_row + t.tile.k.size();
    const bool fits =
        t.q_row >= 0 && t.k_row >= 0 && end_q <= p.capacity_q && end_k <= p.capacity_k;
    if (fits) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tile {} has query rows [{}, {}) and key rows [{}, {}); the plan was "
                             "prepared for {} and {}",
                             i, t.q_row, end_q, t.k_row, end_k, p.capacity_q, p.capacity_k),
                 std::string(provider)};
  }
  return {};
}

}  // namespace longspan::sm90
