#include "comm/nccl/cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace longspan::comm {
namespace {

constexpr size_t kGpu = 2;
constexpr size_t kId = 4;

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "nccl"};
}

}  // namespace

std::array<uint64_t, kCardWords> words_of(const NcclCard& card) {
  std::array<uint64_t, kCardWords> words = {
      card.ready ? 1U : 0U, static_cast<uint64_t>(card.version), card.gpu[0], card.gpu[1]};
  std::copy(card.id.begin(), card.id.end(), words.begin() + kId);
  return words;
}

Result<NcclIdWords> agreed_id(std::span<const uint64_t> words) {
  const size_t ranks = words.size() / kCardWords;
  const auto word = [&](size_t rank, size_t i) { return words[rank * kCardWords + i]; };
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (word(rank, 0) != 0) continue;
    return Error{ErrorCode::kPeerLost,
                 fmt::format("rank {} cannot use NCCL; its own error says why", rank), "nccl"};
  }
  for (size_t rank = 1; rank < ranks; ++rank) {
    if (word(rank, 1) != word(0, 1)) {
      return invalid(
          fmt::format("rank {} has NCCL {} and rank 0 has {}; give all ranks the same library",
                      rank, nccl_version_text(static_cast<int>(word(rank, 1))),
                      nccl_version_text(static_cast<int>(word(0, 1)))));
    }
    for (size_t other = 0; other < rank; ++other) {
      if (word(rank, kGpu) != word(other, kGpu) || word(rank, kGpu + 1) != word(other, kGpu + 1)) {
        continue;
      }
      return invalid(
          fmt::format("ranks {} and {} have the same GPU and nccl needs one for each "
                      "rank; start fewer ranks, or use peer, whose ranks may share GPUs",
                      other, rank));
    }
  }
  NcclIdWords id = {};
  std::copy_n(words.begin() + kId, id.size(), id.begin());
  return id;
}

}  // namespace longspan::comm
