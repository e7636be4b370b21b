// The largest logit of each head over all ranks: few bytes, one exchange after all attend steps.
#include <fmt/format.h>

#include <utility>

#include "strategies/emit.h"

namespace longspan {
namespace {

/// One row, of no token.
const std::vector<Run> kOneRow = {{0, 0, {0, 1, 1}, 1}};

Buffer maxima(const Emission& e, std::string name, const HeadShare& share) {
  return {.quantity = Quantity::kMaxLogit,
          .name = std::move(name),
          .dtype = accumulator(e.problem.dtype),
          .rows = 1,
          .heads = share.q_heads(),
          .dim = 1,
          .head_begin = share.q_begin,
          .runs = kOneRow};
}

/// Between a buffer of the share's heads and one of all heads.
Copy from_share(BufferId from, BufferId to, const HeadShare& share) {
  return {.src = from, .dst = to, .rows = 1, .dst_head = share.q_begin, .heads = share.q_heads()};
}
Copy to_share(BufferId from, BufferId to, const HeadShare& share) {
  return {.src = from, .dst = to, .rows = 1, .src_head = share.q_begin, .heads = share.q_heads()};
}

/// Of all slices.
HeadShare member_share(const Emission& e, int member) {
  return head_share(e.problem, e.arrangement.ways, member);
}

HeadShare every_head(const Emission& e) { return {.q_begin = 0, .q_end = e.problem.heads_q}; }

/// Tells every other rank the largest logits of this rank's heads. Returns what to take the maximum
/// of.
std::vector<Copy> exchange(Emission& e, BufferId own, BufferId all) {
  std::vector<Message> messages;
  std::vector<Copy> copies;
  BufferId sent = kNone;
  if (own != kNone) {
    const HeadShare mine = member_share(e, e.member);
    sent = e.workspace(maxima(e, "max_logit.sent", mine));
    e.builder.copy(StepKind::kPack, {to_share(own, sent, mine)});
    copies.push_back(from_share(sent, all, mine));
  }
  for (int peer = 0; peer < e.arrangement.ways * e.arrangement.rings; ++peer) {
    if (peer == e.rank) continue;
    if (sent != kNone) {
      messages.push_back(Builder::message(TransferKind::kSend, peer, kMaxima, {sent}));
    }
    const HeadShare theirs = member_share(e, peer % e.arrangement.ways);
    if (theirs.q_heads() == 0) continue;
    const BufferId in = e.workspace(maxima(e, fmt::format("max_logit.from{}", peer), theirs));
    messages.push_back(Builder::message(TransferKind::kRecv, peer, kMaxima, {in}));
    copies.push_back(from_share(in, all, theirs));
  }
  e.builder.transfer(StepKind::kAllGather, std::move(messages));
  return copies;
}

}  // namespace

BufferId max_logit_buffer(Emission& e) {
  if (!e.problem.max_logit || e.share.q_heads() == 0) return kNone;
  const BufferId own = e.workspace(maxima(e, "max_logit_own", every_head(e)));
  e.builder.fill({{own, 0, 1}});
  return own;
}

void reduce_max_logit(Emission& e, BufferId own) {
  if (!e.problem.max_logit) return;
  const BufferId all = e.workspace(maxima(e, "max_logit_all", every_head(e)));
  std::vector<Copy> copies = exchange(e, own, all);
  e.builder.fill({{all, 0, 1}});
  e.builder.copy(StepKind::kMaximum, std::move(copies));
  Buffer result = maxima(e, "max_logit", every_head(e));
  result.space = Space::kOperand;
  const BufferId operand = e.builder.add(std::move(result));
  e.builder.copy(StepKind::kUnpack, {from_share(all, operand, every_head(e))});
}

}  // namespace longspan
