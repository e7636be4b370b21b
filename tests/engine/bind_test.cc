// The operand checks, one by one: each test spoils one thing.
#include <gtest/gtest.h>

#include "engine/refusals.h"
#include "testkit/flight.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

/// Rank 0 of two, with buffers that forward keeps for backward.
class Bind : public testing::Test {
 protected:
  Bind() {
    Case c{.problem = "dtype=bf16 heads=4/2 dim=8 dim_v=6 lengths=10,4 mask=causal",
           .ranks = 2,
           .forward = "all_to_all",
           .backward = "all_to_all"};
    inputs_ = inputs_of(c);
    flight_ = make_flight(inputs_, prepare_group(c).value()[0], 0);
    forward_ = flight_.forward_operands();
    backward_ = flight_.backward_operands();
    saved_ = flight_.saved_pointers();
    workspace_ = flight_.scratch();
  }

  Status bind_forward() const { return check_binding(*flight_.call, forward_, saved_, workspace_); }
  Status bind_backward() const {
    return check_binding(*flight_.call, backward_, saved_, workspace_);
  }

  tool::Inputs inputs_;
  Flight flight_;
  ForwardOperands forward_;
  BackwardOperands backward_;
  Saved saved_;
  Workspace workspace_;
};

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

TEST_F(Bind, GoodOperandsPass) {
  EXPECT_TRUE(bind_forward().ok());
  EXPECT_TRUE(bind_backward().ok());
  ASSERT_FALSE(saved_.empty());  // otherwise the tests below show nothing
  ASSERT_GT(workspace_.bytes, 0u);
}

TEST_F(Bind, DTypes) {
  forward_.k.dtype = DType::kF16;
  expect_invalid(bind_forward(), "k is f16; must be bf16");
  backward_.lse.dtype = DType::kBF16;
  expect_invalid(bind_backward(), "lse is bf16; must be f32");
}

TEST_F(Bind, Rows) {
  forward_.q.seq += 1;
  expect_invalid(bind_forward(), "q is [1 x 8, 4, 8]");
  backward_.dv.seq -= 1;
  expect_invalid(bind_backward(), "dv is [1 x 6, 2, 6]");
}

TEST_F(Bind, Heads) {
  forward_.v.heads = 4;
  expect_invalid(bind_forward(), "v is [1 x 7, 4, 6]");
}

TEST_F(Bind, Dims) {
  backward_.dout.dim = 8;
  expect_invalid(bind_backward(), "dout is [1 x 7, 4, 8]");
  backward_ = flight_.backward_operands();
  backward_.lse.dim = 2;
  expect_invalid(bind_backward(), "lse is [1 x 7, 4, 2]");
}

TEST_F(Bind, Batch) {
  forward_.q.batch = 7;
  forward_.q.seq = 1;
  expect_invalid(bind_forward(), "q has batch 7");
}

TEST_F(Bind, NullData) {
  forward_.o.data = nullptr;
  expect_invalid(bind_forward(), "o has no data");
  backward_.dq.data = nullptr;
  expect_invalid(bind_backward(), "dq has no data");
}

TEST_F(Bind, Strides) {
  forward_.q.stride_head = 7;  // heads would overlap: dim is 8
  expect_invalid(bind_forward(), "q has strides");
  forward_ = flight_.forward_operands();
  forward_.k.stride_seq = -16;
  expect_invalid(bind_forward(), "k has strides");
  forward_ = flight_.forward_operands();
  forward_.v.stride_batch = -1;
  expect_invalid(bind_forward(), "v has strides");
}

TEST_F(Bind, OutputRowsThatOverlapEachOther) {
  forward_.o.stride_seq = 4;  // a row has 4 heads of 6
  expect_invalid(bind_forward(), "o has strides");
  backward_.dk.stride_seq = 0;
  expect_invalid(bind_backward(), "dk has strides");
}

TEST_F(Bind, Alignment) {
  forward_.q.data = bytes_of(forward_.q.data) + 1;
  expect_invalid(bind_forward(), "q is not aligned to its elements of 2 bytes");
}

TEST_F(Bind, WorkspaceSize) {
  workspace_.bytes = flight_.call->workspace_bytes(Direction::kForward) - 1;
  expect_invalid(bind_forward(), "workspace has");
  expect_invalid(bind_forward(), "forward needs");
  workspace_.bytes = 0;
  expect_invalid(bind_backward(), "backward needs");
  workspace_ = {nullptr, flight_.workspace.size()};
  expect_invalid(bind_forward(), "workspace has no data");
}

TEST_F(Bind, WorkspaceAlignment) {
  tool::Memory larger(flight_.workspace.size() + 64);
  workspace_ = {larger.data() + 32, flight_.workspace.size()};
  expect_invalid(bind_forward(), "workspace is not aligned to 64 bytes");
}

TEST_F(Bind, WorkspaceOverTensors) {
  forward_.q.data = workspace_.data;
  expect_invalid(bind_forward(), "q overlaps the workspace");
  backward_.dk.data = bytes_of(workspace_.data) + 64;
  expect_invalid(bind_backward(), "dk overlaps the workspace");
}

TEST_F(Bind, OutputsOverInputs) {
  forward_.v.data =
      forward_.o.data;  // which is larger: o in the place of v may meet more behind it
  expect_invalid(bind_forward(), "v and o overlap in memory");
  backward_.dq.data = backward_.q.data;
  expect_invalid(bind_backward(), "q and dq overlap in memory");
}

TEST_F(Bind, OutputsOverOutputs) {
  backward_.dv.data = backward_.dk.data;
  expect_invalid(bind_backward(), "dk and dv overlap in memory");
}

TEST_F(Bind, InputsMayShareMemory) {
  forward_.k.data = forward_.q.data;  // keys and queries of the same numbers
  EXPECT_TRUE(bind_forward().ok());
}

TEST_F(Bind, SavedBuffers) {
  saved_.pop_back();
  expect_invalid(bind_forward(), "is missing (see saved_layout)");
  saved_ = flight_.saved_pointers();
  saved_[0] = nullptr;
  expect_invalid(bind_backward(), "has no data");
  saved_[0] = flight_.saved[0].data() + 2;
  expect_invalid(bind_backward(), "is not aligned to 64 bytes");
  saved_[0] = workspace_.data;
  expect_invalid(bind_forward(), "overlaps the workspace");
  saved_[0] = forward_.q.data;
  expect_invalid(bind_forward(), "overlaps q");
  saved_ = flight_.saved_pointers();
  saved_[1] = saved_[0];
  expect_invalid(bind_forward(), "overlap");
}

TEST_F(Bind, NothingMovesWhenTheCheckFails) {
  std::vector<Status> statuses(2);
  const Case c{.problem = "dtype=f32 heads=2/2 dim=8 lengths=9 mask=causal", .ranks = 2};
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(2, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        Flight flight = make_flight(inputs, engine->prepare(inputs.problem).value(), rank);
        ForwardOperands bad = flight.forward_operands();
        bad.q.data = nullptr;
        Stream stream;
        EXPECT_FALSE(engine->forward(*flight.call, bad, {}, flight.scratch(), stream).ok());
        statuses[static_cast<size_t>(rank)] = forward(*engine, flight);  // the engine is still good
      });
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_TRUE(statuses[1].ok());
}

}  // namespace
}  // namespace longspan::testkit
