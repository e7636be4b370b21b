// What only the callback communicator does: defaults, checks, and exceptions of callbacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "comm/ranks.h"
#include "longspan/communicator.h"

namespace longspan::test {
namespace {

using ::testing::HasSubstr;

CallbackGroup minimal() {
  CallbackGroup group;
  group.topology = Topology::blocks(2, 1);
  group.start = [](std::span<const Transfer>) -> Result<Request> { return Request{5}; };
  group.wait = [](Request, std::chrono::milliseconds) { return Status{}; };
  return group;
}

void expect_bad(CallbackGroup group, const char* text) {
  const auto made = make_callback_communicator(std::move(group));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message, HasSubstr(text));
}

TEST(Callback, BadGroupsAreRefused) {
  CallbackGroup group = minimal();
  group.start = nullptr;
  expect_bad(group, "start");
  group = minimal();
  group.wait = nullptr;
  expect_bad(group, "wait");
  group = minimal();
  group.rank = 2;
  expect_bad(group, "rank 2");
  group.rank = -1;
  expect_bad(group, "rank -1");
  group = minimal();
  group.topology = {};
  expect_bad(group, "0 ranks");
  group = minimal();
  group.topology.node_of_rank[1] = 7;
  expect_bad(group, "node 7");
}

TEST(Callback, EmptyFunctionsHaveDefaults) {
  const auto made = make_callback_communicator(minimal());
  ASSERT_TRUE(made.ok());
  Communicator& own = **made;
  EXPECT_EQ(own.name(), "callback");
  const auto data = own.allocate(100);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*data) % 64, 0u);
  EXPECT_TRUE(own.register_buffer(*data, 100).ok());
  own.deregister_buffer(*data);
  own.release(*data);
  const auto part = own.split(0, 0);
  ASSERT_FALSE(part.ok());
  EXPECT_EQ(part.error().code, ErrorCode::kUnsupported);
  own.abandon({ErrorCode::kInternal, "nobody listens", "test"});
}

TEST(Callback, GroupMemoryGoesBackToTheGroup) {
  alignas(64) std::array<char, 256> memory = {};
  std::vector<void*> released;
  char* next = memory.data();
  CallbackGroup group = minimal();
  group.allocate = [&](size_t) -> Result<void*> { return next; };
  group.release = [&](void* data) { released.push_back(data); };
  {
    auto made = make_callback_communicator(group);
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE((*made)->allocate(1).ok());
    next += 64;
    ASSERT_TRUE((*made)->allocate(1).ok());
    (*made)->release(memory.data());
    EXPECT_EQ(released, std::vector<void*>{memory.data()});
    next += 1;
    const auto crooked = (*made)->allocate(1);
    ASSERT_FALSE(crooked.ok());
    EXPECT_THAT(crooked.error().message, HasSubstr("64 bytes"));
    released.clear();
    next = nullptr;
    const auto null = (*made)->allocate(77);
    ASSERT_FALSE(null.ok());
    EXPECT_EQ(null.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(null.error().message, HasSubstr("77"));
  }
  EXPECT_EQ(released, std::vector<void*>{memory.data() + 64});
}

TEST(Callback, ExceptionsBecomeErrors) {
  CallbackGroup group = minimal();
  group.start = [](std::span<const Transfer>) -> Result<Request> {
    throw std::runtime_error("wire cut");
  };
  group.wait = [](Request, std::chrono::milliseconds) -> Status { throw 7; };
  group.abandon = [](const Error&) { throw std::runtime_error("no"); };
  const auto made = make_callback_communicator(group);
  ASSERT_TRUE(made.ok());
  const auto request = (*made)->start({});
  ASSERT_FALSE(request.ok());
  EXPECT_THAT(request.error().text(), HasSubstr("wire cut"));
  EXPECT_FALSE((*made)->wait({}, std::chrono::milliseconds(1)).ok());
  (*made)->abandon({ErrorCode::kInternal, "x", "test"});
}

}  // namespace
}  // namespace longspan::test
