// Calls of an opened kernel do not touch the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "double_store.h"

namespace {
std::atomic<int64_t> allocations{0};

void* allocate(size_t bytes) {
  ++allocations;
  void* const data = std::malloc(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace longspan::prepared::testing {
namespace {

int64_t allocations_of_a_call(const json& manifest, const Values& values) {
  DoubleStore store;
  store.add(manifest);
  const auto kernel = store.open();
  EXPECT_TRUE(kernel.ok());
  EXPECT_TRUE((*kernel)->run(values).ok());
  const int64_t before = allocations;
  EXPECT_TRUE((*kernel)->run(values).ok());
  return allocations - before;
}

Values some_values() {
  static uint16_t rows[64];
  Values values;
  for (const Name name : {Name::kQ, Name::kK, Name::kV, Name::kO, Name::kLse}) {
    const bool lse = name == Name::kLse;
    values[name] = {.data = rows,
                    .element = lse ? Element::kF32 : Element::kBF16,
                    .rank = lse ? 3 : 4,
                    .shape = {1, 1, 1, 16},
                    .strides = {16, 16, 16, 1}};
  }
  return values;
}

TEST(Allocation, TensorsAndTuplesLieOnTheStack) {
  EXPECT_EQ(allocations_of_a_call(forward_manifest("records", "records", "full", kForwardFull),
                                  some_values()),
            0);
  EXPECT_EQ(
      allocations_of_a_call(frost_manifest("frost38", "frost.sm100_38", kFrost38), some_values()),
      0);
}

TEST(Allocation, TheCountSeesThem) {
  const int64_t before = allocations;
  const std::vector<int> some(10);
  EXPECT_GT(allocations, before);
  EXPECT_EQ(some.size(), 10u);
}

}  // namespace
}  // namespace longspan::prepared::testing
