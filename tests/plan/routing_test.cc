// The text of --provider.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/engine.h"

namespace longspan {
namespace {

using testing::HasSubstr;

TEST(Routing, EveryModeAndProviderParses) {
  EXPECT_EQ(*parse_routing("auto"), Routing{});
  EXPECT_EQ(text(Routing{}), "auto");
  ASSERT_FALSE(providers().empty());
  for (const Provider* provider : providers()) {
    const std::string name(provider->name());
    EXPECT_EQ(*parse_routing("prefer:" + name), (Routing{RoutingMode::kPrefer, name}));
    EXPECT_EQ(*parse_routing("require:" + name), (Routing{RoutingMode::kRequire, name}));
    EXPECT_EQ(*parse_routing("off:" + name), (Routing{RoutingMode::kOff, name}));
    for (const std::string mode : {"prefer:", "require:", "off:"}) {
      EXPECT_EQ(text(*parse_routing(mode + name)), mode + name);
    }
  }
}

TEST(Routing, AnythingElseIsRefusedWithWhatIsAllowed) {
  const std::string known(providers()[0]->name());
  for (const std::string& text :
       {std::string(), std::string("yes"), std::string("2"), std::string("require"),
        std::string("require:"), std::string("require:nope"), std::string("Prefer:") + known, known,
        std::string(":") + known, std::string("auto:") + known, std::string("off:") + known + " ",
        std::string("auto ")}) {
    const Result<Routing> result = parse_routing(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().where, "routing");
    EXPECT_THAT(result.error().message, HasSubstr("provider \"" + text + "\" is not allowed"));
    EXPECT_THAT(result.error().message, HasSubstr("auto, or prefer:NAME, require:NAME, off:NAME"));
    for (const Provider* provider : providers()) {
      EXPECT_THAT(result.error().message, HasSubstr(std::string(provider->name())));
    }
  }
}

}  // namespace
}  // namespace longspan
