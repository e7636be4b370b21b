// What nccl decides without a GPU: which library, and whether the ranks fit together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "comm/nccl/cards.h"
#include "longspan/communicator.h"
#include "longspan/device.h"

namespace longspan::comm {
namespace {

using ::testing::HasSubstr;

NcclCard card_of(uint64_t rank) {
  NcclCard card{.ready = true, .version = 22809, .gpu = {7, rank}};
  card.id.fill(100 + rank);
  return card;
}

std::vector<uint64_t> words_of(const std::vector<NcclCard>& cards) {
  std::vector<uint64_t> all;
  for (const NcclCard& card : cards) {
    const auto words = words_of(card);
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

void expect_error(const std::vector<NcclCard>& cards, ErrorCode code, const char* text) {
  const auto id = agreed_id(words_of(cards));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, code);
  EXPECT_THAT(id.error().message, HasSubstr(text));
}

TEST(NcclCards, TheIdIsThatOfRankZero) {
  const auto id = agreed_id(words_of({card_of(0), card_of(1), card_of(2)}));
  ASSERT_TRUE(id.ok()) << id.error().text();
  EXPECT_EQ(*id, card_of(0).id);
}

TEST(NcclCards, WhatCannotWorkIsAnErrorOfAll) {
  std::vector<NcclCard> cards = {card_of(0), card_of(1), card_of(2)};
  cards[2].gpu = cards[1].gpu;
  expect_error(cards, ErrorCode::kInvalidArgument, "ranks 1 and 2 have the same GPU");
  cards = {card_of(0), card_of(1)};
  cards[1].version = 22900;
  expect_error(cards, ErrorCode::kInvalidArgument, "rank 1 has NCCL 2.29.0 and rank 0 has 2.28.9");
  cards[0].ready = false;
  expect_error(cards, ErrorCode::kPeerLost, "rank 0 cannot use NCCL");
}

TEST(NcclLibrary, SaysWhatWasTried) {
  const auto missing = open_nccl("/nowhere/libnccl.so.2");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(missing.error().message,
              HasSubstr("could not be opened as \"/nowhere/libnccl.so.2\""));
  EXPECT_THAT(missing.error().message, HasSubstr("install nvidia-nccl-cu13 2.28.0 or newer"));
}

TEST(Nccl, ARankThatCannotGoOnTellsTheOthers) {
  const auto host = make_threads_communicators(Topology::blocks(1, 1));
  const auto made = make_nccl_communicator(host[0], cpu_device(1));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message, HasSubstr("device cpu is no CUDA device"));
}

TEST(Nccl, WithoutAHostThereIsNoGroup) {
  const auto made = make_nccl_communicator(std::shared_ptr<Communicator>(), cpu_device(1));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message, HasSubstr("host is no communicator of host memory"));
}

TEST(Nccl, RanksOutsideTheTopologyAreRefused) {
  const NcclMember member{.rank = 2, .topology = Topology::blocks(2, 1)};
  for (const auto& made : {make_nccl_communicator(NcclId{}, member, cpu_device(1)),
                           make_nccl_communicator("/tmp/meeting", member, cpu_device(1))}) {
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.error().message, HasSubstr("rank 2 is not in the topology"));
  }
}

}  // namespace
}  // namespace longspan::comm
