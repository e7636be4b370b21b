// The bodies that every communicator must pass, ranks as MPI processes: run by mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "comm/bodies.h"
#include "comm/mpi/communicator.h"
#include "longspan/communicator.h"

namespace longspan::test {
namespace {

/// Pieces of this size cut the larger messages of the bodies, some of them without a rest.
constexpr size_t kSmallPiece = 4096;

class MpiHealthy : public ::testing::TestWithParam<Body> {};

void run(const comm::MpiSettings& settings, const Body& body) {
  const auto communicator = comm::make_mpi(settings);
  ASSERT_TRUE(communicator.ok()) << communicator.error().text();
  EXPECT_EQ((*communicator)->name(), "mpi");
  body.run(**communicator);
}

TEST_P(MpiHealthy, Passes) { run({.nodes = 2}, GetParam()); }
TEST_P(MpiHealthy, PassesInPieces) { run({.piece_bytes = kSmallPiece}, GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, MpiHealthy,
                         ::testing::ValuesIn(healthy_bodies().begin(), healthy_bodies().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Mpi, NodesAreHostsOrBlocks) {
  const auto by_host = make_mpi_communicator();
  ASSERT_TRUE(by_host.ok()) << by_host.error().text();
  EXPECT_EQ((*by_host)->topology().nodes(), 1);  // all processes of this test share a host
  const auto blocks = make_mpi_communicator(2);
  ASSERT_TRUE(blocks.ok()) << blocks.error().text();
  const int ranks = (*blocks)->size();
  EXPECT_EQ((*blocks)->topology().node_of_rank, Topology::blocks(ranks, 2).node_of_rank);
}

TEST(Mpi, BadSettingsAreRefused) {
  const auto negative = make_mpi_communicator(-1);
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(negative.error().message, ::testing::HasSubstr("-1"));
  EXPECT_FALSE(comm::make_mpi({.piece_bytes = 0}).ok());
  EXPECT_FALSE(comm::make_mpi({.piece_bytes = size_t{1} << 31}).ok());
}

TEST(Mpi, TagsAboveThoseOfMpiAreNamed) {
  const auto made = make_mpi_communicator();
  ASSERT_TRUE(made.ok());
  char byte = 0;
  const Transfer transfer = {TransferKind::kSend, 0, kLargestTag + 5, &byte, 1};
  const auto request = (*made)->start(std::span(&transfer, 1));
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
}

/// A message longer than MPI's counts; only on request, because two processes need 5 GiB.
TEST(Mpi, DISABLED_MessageBeyondTwoGigabytes) {
  const auto made = make_mpi_communicator();
  ASSERT_TRUE(made.ok());
  Communicator& own = **made;
  if (own.rank() > 1) return;
  constexpr size_t kBytes = (size_t{5} << 29) + 12345;
  std::vector<unsigned char> data(kBytes);
  const bool sends = own.rank() == 0;
  for (size_t i = 0; sends && i < kBytes; i += 4093) data[i] = static_cast<unsigned char>(i / 4093);
  const Transfer transfer = {sends ? TransferKind::kSend : TransferKind::kRecv, 1 - own.rank(), 1,
                             data.data(), kBytes};
  const auto request = own.start(std::span(&transfer, 1));
  ASSERT_TRUE(request.ok());
  const Status status = own.wait(*request, 2 * kPatience);
  ASSERT_TRUE(status.ok()) << status.error().text();
  for (size_t i = 0; i < kBytes; i += 4093) {
    ASSERT_EQ(data[i], static_cast<unsigned char>(i / 4093)) << i;
  }
}

}  // namespace
}  // namespace longspan::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Held to the end: MPI starts once per process.
  const auto communicator = longspan::make_mpi_communicator();
  if (!communicator.ok()) return 3;
  return RUN_ALL_TESTS();
}
