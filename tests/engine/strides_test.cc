// Tensors with the strides of a caller's own: views into larger memory that stays untouched.
#include <gtest/gtest.h>

#include <cstring>

#include "numbers.h"
#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

/// A tensor inside larger memory; everything around it stays 0xff (NaN, so that a read shows).
struct Framed {
  tool::Memory memory;
  TensorView view;
};

/// Elements between neighbours of each dimension, as a caller's own allocation has them.
struct Strides {
  int64_t batch, seq, head, offset;
};

template <class Choose>
Framed framed(const TensorView& like, Choose&& choose) {
  const Strides s = choose(like);
  Framed result;
  result.view = like;
  result.view.stride_batch = s.batch;
  result.view.stride_seq = s.seq;
  result.view.stride_head = s.head;
  const int64_t size = size_of(like.dtype);
  result.memory =
      tool::Memory(static_cast<size_t>(result.view.extent_bytes() + 2 * s.offset * size));
  std::memset(result.memory.data(), 0xff, result.memory.size());
  result.view.data = result.memory.data() + s.offset * size;
  return result;
}

template <class Body>
void for_elements(const TensorView& view, Body&& body) {
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t i = 0; i < view.dim; ++i) body(row, head, i);
    }
  }
}

void copy(const TensorView& from, const TensorView& to) {
  for_elements(from, [&](int64_t row, int64_t head, int64_t i) {
    tool::store(to, row, head, i, tool::load(from, row, head, i));
  });
}

int64_t bytes_not_ff(const tool::Memory& memory) {
  int64_t count = 0;
  for (size_t i = 0; i < memory.size(); ++i) count += memory.data()[i] != std::byte{0xff};
  return count;
}

void expect_equal(const TensorView& a, const TensorView& b, const char* name) {
  int64_t differences = 0;
  for_elements(a, [&](int64_t row, int64_t head, int64_t i) {
    differences += tool::load(a, row, head, i) != tool::load(b, row, head, i);
  });
  EXPECT_EQ(differences, 0) << name;
}

/// The framed bytes outside the tensor are as they were.
void expect_frame_untouched(Framed& framed, const char* name) {
  const int64_t size = size_of(framed.view.dtype);
  auto* data = static_cast<std::byte*>(framed.view.data);
  for_elements(framed.view, [&](int64_t row, int64_t head, int64_t i) {
    std::memset(data + (framed.view.offset(row, head) + i) * size, 0xff, static_cast<size_t>(size));
  });
  EXPECT_EQ(bytes_not_ff(framed.memory), 0) << name;
}

/// Runs `problem` on two ranks with the strides of `choose` and with contiguous tensors.
template <class Choose>
void expect_strides_change_nothing(const std::string& problem, const StrategyPair& pair,
                                   Choose&& choose) {
  const Case c{.problem = problem,
               .ranks = 2,
               .forward = pair.forward,
               .backward = pair.backward,
               .partition = "zigzag"};
  SCOPED_TRACE(text(c));
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(2, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(inputs.problem).value();
        Flight plain = make_flight(inputs, call, rank);
        ASSERT_TRUE(forward(*engine, plain).ok());
        ASSERT_TRUE(backward(*engine, plain).ok());

        Flight flight = make_flight(inputs, call, rank);
        tool::Tensor* const tensors[] = {&flight.q,    &flight.k,  &flight.v,
                                         &flight.dout, &flight.o,  &flight.lse,
                                         &flight.dq,   &flight.dk, &flight.dv};
        std::vector<Framed> frames;
        for (tool::Tensor* tensor : tensors) {
          frames.push_back(framed(tensor->view, choose));
          copy(tensor->view, frames.back().view);
          tensor->view = frames.back().view;
        }
        const Status ahead = forward(*engine, flight);
        ASSERT_TRUE(ahead.ok()) << ahead.error().text();
        const Status back = backward(*engine, flight);
        ASSERT_TRUE(back.ok()) << back.error().text();
        expect_equal(flight.o.view, plain.o.view, "o");
        expect_equal(flight.lse.view, plain.lse.view, "lse");
        expect_equal(flight.dq.view, plain.dq.view, "dq");
        expect_equal(flight.dk.view, plain.dk.view, "dk");
        expect_equal(flight.dv.view, plain.dv.view, "dv");
        for (Framed& frame : frames) expect_frame_untouched(frame, "bytes around a tensor");
      });
}

constexpr const char* kPacked = "dtype=bf16 heads=4/2 dim=10 dim_v=6 lengths=23,0,12 mask=causal";
constexpr const char* kBatched =
    "dtype=f32 heads=4/2 dim=10 lengths=20,11,20 padded=20,20,20 kv_padded=20,20,20 mask=causal "
    "layout=bshd";

class CallerStrides : public testing::TestWithParam<StrategyPair> {};

TEST_P(CallerStrides, HeadMajor) {
  expect_strides_change_nothing(kPacked, GetParam(), [](const TensorView& v) {
    return Strides{v.rows() * v.heads * v.dim, v.dim, v.rows() * v.dim, 32};
  });
}

TEST_P(CallerStrides, GapsBetweenBatchesRowsAndHeads) {
  for (const char* problem : {kPacked, kBatched}) {
    expect_strides_change_nothing(problem, GetParam(), [](const TensorView& v) {
      const int64_t head = v.dim + 3;
      const int64_t row = v.heads * head + 5;
      return Strides{v.seq * row + 77, row, head, 64};
    });
  }
}

TEST_P(CallerStrides, TailOfAnOverallocatedBuffer) {
  expect_strides_change_nothing(kBatched, GetParam(), [](const TensorView& v) {
    return Strides{v.seq * v.heads * v.dim, v.heads * v.dim, v.dim, 4096};
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, CallerStrides, testing::ValuesIn(diagonal_pairs()));

/// q, k and v in one allocation, and their gradients in another.
void expect_packed_qkv(int64_t stride_seq, int64_t stride_head, int64_t apart) {
  const Case c{.problem = "dtype=f32 heads=3/3 dim=8 lengths=15 mask=causal"};
  const tool::Inputs inputs = inputs_of(c);
  const auto engine =
      Engine::create(options_of(c), make_threads_communicators(Topology::blocks(1, 1))[0],
                     shared_device())
          .value();
  const auto call = engine->prepare(inputs.problem).value();
  Flight plain = make_flight(inputs, call, 0);
  ASSERT_TRUE(forward(*engine, plain).ok());
  ASSERT_TRUE(backward(*engine, plain).ok());
  Flight flight = make_flight(inputs, call, 0);
  std::vector<float> qkv(15 * 3 * 3 * 8), gradients(15 * 3 * 3 * 8);
  const auto place = [&](tool::Tensor& tensor, std::vector<float>& memory, int64_t index) {
    const TensorView from = tensor.view;
    tensor.view.data = memory.data() + index * apart;
    tensor.view.stride_seq = stride_seq;
    tensor.view.stride_head = stride_head;
    copy(from, tensor.view);
  };
  place(flight.q, qkv, 0);
  place(flight.k, qkv, 1);
  place(flight.v, qkv, 2);
  place(flight.dq, gradients, 0);
  place(flight.dk, gradients, 1);
  place(flight.dv, gradients, 2);
  ASSERT_TRUE(forward(*engine, flight).ok());
  const Status back = backward(*engine, flight);
  ASSERT_TRUE(back.ok()) << back.error().text();
  expect_equal(flight.o.view, plain.o.view, "o");
  expect_equal(flight.dq.view, plain.dq.view, "dq");
  expect_equal(flight.dk.view, plain.dk.view, "dk");
  expect_equal(flight.dv.view, plain.dv.view, "dv");
}

TEST(PackedQkv, RowByRow) { expect_packed_qkv(3 * 3 * 8, 8, 3 * 8); }
TEST(PackedQkv, HeadByHead) { expect_packed_qkv(3 * 3 * 8, 3 * 8, 8); }

}  // namespace
}  // namespace longspan::testkit
