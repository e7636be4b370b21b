// Objects that exporters made, up to the missing driver: opened, checked, and given operands that
// every check of an entry accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "providers/prepared/launches.h"
#include "providers/prepared/layout.h"
#include "providers/prepared/scratch.h"
#include "providers/prepared/store.h"

namespace longspan::prepared {
namespace {

constexpr int64_t kRows = 256;

/// Memory of the host in the place of all operands: nothing reads it without a driver.
std::byte* memory() {
  static std::vector<std::byte> bytes(64 << 20);
  return bytes.data() + (256 - reinterpret_cast<uintptr_t>(bytes.data()) % 256);
}

TileProblem problem_of(const Serves& s) {
  const int64_t heads_kv = s.heads_kv != 0 ? s.heads_kv : 2;
  return {.direction = s.direction,
          .dtype = s.dtype,
          .heads_q = heads_kv * s.group,
          .heads_kv = heads_kv,
          .group = s.group,
          .dim_qk = s.dim,
          .dim_v = s.dim_v,
          .capacity_q = 2 * kRows,
          .capacity_k = 2 * kRows};
}

Launch launch_of(const Manifest& m) {
  const bool fixed = m.serves.tokens_q != 0 && !m.serves.lengths;
  const rows::Entry first{.nq = fixed ? m.serves.tokens_q : kRows,
                          .nk = fixed ? m.serves.tokens_k : kRows};
  const rows::Entry second{.q_row = kRows, .k_row = kRows, .nq = kRows, .nk = kRows};
  Launch launch{.packed = m.serves.packed, .entries = {first}};
  if (m.engine == Engine::kFa4) launch.entries.push_back(second);
  return launch;
}

Operand table(const Launch& launch) {
  return {.data = memory(),
          .element = Element::kI32,
          .rank = 1,
          .shape = {static_cast<int64_t>(launch.entries.size()) + 1},
          .strides = {1}};
}

Values values_of(const Manifest& m, const Launch& launch) {
  const TileProblem p = problem_of(m.serves);
  Values v;
  const auto place = [&](Name name, bool keys, int64_t dim) {
    v[name] = in_scratch(memory(), element_of(p.dtype), launch,
                         {.keys = keys, .heads = keys ? p.heads_kv : p.heads_q, .dim = dim});
  };
  for (const Name name : {Name::kQ, Name::kDq}) place(name, false, p.dim_qk);
  for (const Name name : {Name::kO, Name::kDout}) place(name, false, p.dim_v);
  for (const Name name : {Name::kK, Name::kDk}) place(name, true, p.dim_qk);
  for (const Name name : {Name::kV, Name::kDv}) place(name, true, p.dim_v);
  v[Name::kLse] = statistics_in_scratch(memory(), launch, p.heads_q);
  v[Name::kCumulativeQ] = v[Name::kCumulativeK] = table(launch);
  v[Name::kLengthsQ] = v[Name::kLengthsK] = table(launch);
  v.sizes = {1, p.heads_q, p.heads_kv, launch.sq(), launch.sk(), 0};
  v.tokens_q = m.serves.tokens_q;
  v.left = v.right = 3;
  for (const Buffer& b : m.buffers) {
    v[b.name] = buffer_operand(b, m, p, launch);
    v[b.name].data = memory();
  }
  return v;
}

TEST(Exported, EveryBuildOpensAndItsCallsEndAtTheDriver) {
  const auto store = Store::read(LONGSPAN_TEST_STORE);
  ASSERT_TRUE(store.ok()) << store.error().text();
  ASSERT_FALSE((*store)->manifests().empty());
  for (const Manifest& m : (*store)->manifests()) {
    SCOPED_TRACE(m.name);
    const auto kernel = (*store)->kernel(m);
    ASSERT_TRUE(kernel.ok()) << kernel.error().text();
    const Status status = (*kernel)->run(values_of(m, launch_of(m)));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDriver);
    // Checks of an entry raise TypeError and ValueError.
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("RuntimeError"))
        << status.error().message;
  }
}

}  // namespace
}  // namespace longspan::prepared
