// q, k and v as views of one allocation, their gradients as views of another: bits as with tensors
// of their own, whatever order the memory has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "numbers.h"
#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

/// Order of the dimensions of one allocation, tensors of it aside.
enum class Format { kTHD, kBSHD, kSBHD, kBHSD };

/// Where the number of the tensor stands: before the heads (3HD), or between heads and dim (H3D).
enum class Order { kTensorHeadDim, kHeadTensorDim };

/// Tensors of equal shape in one allocation, which they share without a gap.
struct Pack {
  tool::Memory memory;
  std::vector<TensorView> views;
};

TensorView strides_of(TensorView view, Format format, Order order, int64_t count) {
  const int64_t block = count * view.heads * view.dim;
  view.stride_head = order == Order::kTensorHeadDim ? view.dim : count * view.dim;
  switch (format) {
    case Format::kTHD:
    case Format::kBSHD:
      view.stride_seq = block;
      view.stride_batch = view.seq * block;
      break;
    case Format::kSBHD:
      view.stride_batch = block;
      view.stride_seq = view.batch * block;
      break;
    case Format::kBHSD:  // of single tensors
      view.stride_seq = view.dim;
      view.stride_head = view.seq * view.dim;
      view.stride_batch = view.seq * block;
  }
  return view;
}

Pack pack(const std::vector<tool::Tensor*>& tensors, Format format, Order order) {
  const TensorView& like = tensors.front()->view;
  const auto count = static_cast<int64_t>(tensors.size());
  const int64_t elements = count * like.rows() * like.heads * like.dim;
  Pack result{.memory = tool::Memory(static_cast<size_t>(elements * size_of(like.dtype)))};
  const int64_t apart = order == Order::kTensorHeadDim ? like.heads * like.dim : like.dim;
  for (int64_t i = 0; i < count; ++i) {
    TensorView view = strides_of(tensors[static_cast<size_t>(i)]->view, format, order, count);
    view.data = result.memory.data() + i * apart * size_of(like.dtype);
    result.views.push_back(view);
  }
  return result;
}

void copy(const TensorView& from, const TensorView& to) {
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t head = 0; head < from.heads; ++head) {
      for (int64_t i = 0; i < from.dim; ++i) {
        tool::store(to, row, head, i, tool::load(from, row, head, i));
      }
    }
  }
}

/// How q, k and v share memory: sets of tensors, each in one allocation of its own.
struct Packing {
  std::string name;
  std::vector<std::vector<int>> sets;  // 0: q, 1: k, 2: v
  Order order = Order::kTensorHeadDim;
};

const std::vector<Packing>& packings() {
  static const std::vector<Packing> all = {
      {"separate", {{0}, {1}, {2}}},
      {"3HD", {{0, 1, 2}}},
      {"H3D", {{0, 1, 2}}, Order::kHeadTensorDim},
      {"HD_2HD", {{0}, {1, 2}}},
      {"HD_H2D", {{0}, {1, 2}}, Order::kHeadTensorDim},
  };
  return all;
}

/// Memory orders of q and of k and v; a set with q in it has that of q.
struct Formats {
  std::string name;
  std::string layout;
  Format q = Format::kTHD;
  Format kv = Format::kTHD;
};

const std::vector<Formats>& formats() {
  static const std::vector<Formats> all = {
      {"thd", "thd"},
      {"bshd", "bshd", Format::kBSHD, Format::kBSHD},
      {"sbhd", "sbhd", Format::kSBHD, Format::kSBHD},
      {"bshd_sbhd", "bshd", Format::kBSHD, Format::kSBHD},
      {"sbhd_bshd", "sbhd", Format::kSBHD, Format::kBSHD},
  };
  return all;
}

/// Lets the tensors of a flight share memory. The gradients' memory starts as NaN.
void place(Flight& flight, const Packing& packing, const Formats& format,
           std::vector<Pack>& packs) {
  const std::vector<std::vector<tool::Tensor*>> kinds = {{&flight.q, &flight.k, &flight.v},
                                                         {&flight.dq, &flight.dk, &flight.dv}};
  for (const std::vector<tool::Tensor*>& kind : kinds) {
    for (const std::vector<int>& set : packing.sets) {
      std::vector<tool::Tensor*> members;
      for (const int index : set) members.push_back(kind[static_cast<size_t>(index)]);
      packs.push_back(pack(members, set.front() == 0 ? format.q : format.kv, packing.order));
      for (size_t i = 0; i < members.size(); ++i) {
        copy(members[i]->view, packs.back().views[i]);
        members[i]->view = packs.back().views[i];
      }
    }
  }
}

/// Results in memory of their own, so that they can be gathered and compared.
void unplace(Flight& flight, const Flight& shapes) {
  const auto own = [](tool::Tensor& tensor, const TensorView& shape) {
    const TensorView from = tensor.view;
    tensor.view = shape;
    tensor.view.data = tensor.memory.data();
    copy(from, tensor.view);
  };
  own(flight.dq, shapes.dq.view);
  own(flight.dk, shapes.dk.view);
  own(flight.dv, shapes.dv.view);
}

/// Each rank: separate tensors, then packed ones, through the same engine.
void expect_same_bits(const Case& c, const Packing& packing, const Formats& format) {
  SCOPED_TRACE(fmt::format("{} {} {}", packing.name, format.name, text(c)));
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(c.ranks, c.nodes)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(inputs.problem).value();
        Flight plain = make_flight(inputs, call, rank);
        ASSERT_TRUE(forward(*engine, plain).ok());
        ASSERT_TRUE(backward(*engine, plain).ok());
        Flight packed = make_flight(inputs, call, rank);
        std::vector<Pack> packs;
        place(packed, packing, format, packs);
        const Status ahead = forward(*engine, packed);
        ASSERT_TRUE(ahead.ok()) << ahead.error().text();
        const Status back = backward(*engine, packed);
        ASSERT_TRUE(back.ok()) << back.error().text();
        unplace(packed, plain);
        EXPECT_EQ(different_results(packed, plain), "") << "rank " << rank;
      });
}

std::string problem_of(const std::string& heads, const std::string& layout) {
  const char* const lengths = layout == "thd"
                                  ? "lengths=15,0,9 padded=16,0,9 kv_padded=15,2,9"
                                  : "lengths=11,12 padded=12,12 kv_lengths=13,10 kv_padded=14,14";
  return fmt::format("dtype=bf16 heads={} dim=8 {} mask=causal layout={}", heads, lengths, layout);
}

/// q, k and v in one allocation need equally many rows and heads of all, and one order.
bool whole(const Packing& packing) { return packing.sets.size() == 1; }

struct PackedCase {
  Packing packing;
  Formats formats;
};

std::vector<PackedCase> packed_cases() {
  std::vector<PackedCase> cases;
  for (const Packing& packing : packings()) {
    for (const Formats& format : formats()) {
      if (!whole(packing) || format.q == format.kv) cases.push_back({packing, format});
    }
  }
  return cases;
}

void PrintTo(const PackedCase& c, std::ostream* out) {
  *out << c.packing.name << " " << c.formats.name;
}

class Packed : public testing::TestWithParam<PackedCase> {};

TEST_P(Packed, EqualsSeparateTensors) {
  const auto& [packing, format] = GetParam();
  std::vector<std::string> problems = {problem_of("3/3", format.layout),
                                       problem_of("6/3", format.layout)};
  if (whole(packing)) {
    problems = {fmt::format("dtype=bf16 heads=3/3 dim=8 lengths={} mask=causal layout={}",
                            format.layout == "thd" ? "15,0,9" : "12,12", format.layout)};
  }
  for (const std::string& problem : problems) {
    for (const StrategyPair& pair : diagonal_pairs()) {
      for (const int ranks : {1, 3}) {
        expect_same_bits({.problem = problem,
                          .ranks = ranks,
                          .nodes = ranks,
                          .forward = pair.forward,
                          .backward = pair.backward,
                          .partition = "zigzag"},
                         packing, format);
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<PackedCase>& info) {
  return fmt::format("q{}_{}", info.param.packing.name, info.param.formats.name);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Packed, testing::ValuesIn(packed_cases()), name_of);

TEST(HeadMajor, EqualsSeparateTensors) {
  const Packing separate = packings().front();
  for (const Formats& format : {Formats{"bhsd", "bshd", Format::kBHSD, Format::kBHSD},
                                {"bshd_bhsd", "bshd", Format::kBSHD, Format::kBHSD},
                                {"bhsd_sbhd", "sbhd", Format::kBHSD, Format::kSBHD}}) {
    for (const int ranks : {1, 3}) {
      expect_same_bits({.problem = problem_of("6/3", format.layout), .ranks = ranks}, separate,
                       format);
    }
  }
}

}  // namespace
}  // namespace longspan::testkit
