#include "longspan/provider.h"

namespace longspan {

Features features_of(const Problem& p, Direction direction) {
  Features features{.window = p.window_left >= 0 || p.window_right >= 0,
                    .softcap = p.softcap != 0,
                    .alibi = p.alibi != Alibi::kNone,
                    .bias = p.bias,
                    .dropout = p.dropout != 0,
                    .max_logit = p.max_logit && direction == Direction::kForward,
                    .paged = p.page != 0,
                    .device_lengths = p.device_lengths,
                    .deterministic = p.deterministic || p.invariant,
                    .fp8 = p.fp8,
                    .modification = {}};
  if (p.modification) features.modification = p.modification.functions->key;
  return features;
}

}  // namespace longspan
