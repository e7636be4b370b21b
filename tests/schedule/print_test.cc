// What a person gets to see of a schedule.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "longspan/schedule.h"
#include "strategies/build.h"

namespace longspan::test {
namespace {

size_t count(const std::string& text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

Setting causal_ring() {
  return setting_of("dtype=f32 heads=2/1 dim=16 lengths=64 mask=causal", {.ranks = 4});
}

TEST(Print, HasOneLinePerStepAndBuffer) {
  const Setting setting = causal_ring();
  for (const Schedule& schedule : schedules_of(setting, Direction::kForward)) {
    const std::string text = print(schedule);
    // Three lines of totals, two empty ones, two headings.
    EXPECT_EQ(count(text, "\n"), 7 + schedule.steps.size() + schedule.buffers.size());
    for (const Buffer& buffer : schedule.buffers) {
      EXPECT_NE(text.find("\n" + buffer.name + " "), std::string::npos) << buffer.name;
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 140u) << line;
  }
}

TEST(Print, EmptyTilesCostNothing) {
  // Contiguous pieces under a causal mask: rank 0 sees its own keys alone and receives nothing,
  // rank 3 sends nothing.
  const std::vector<Schedule> schedules = schedules_of(causal_ring(), Direction::kForward);
  const std::string first = print(schedules[0]);
  const std::string last = print(schedules[3]);
  EXPECT_NE(first.find("ring forward, rank 0 of 4"), std::string::npos);
  EXPECT_NE(first.find(" 1 tiles,"), std::string::npos) << first;
  EXPECT_EQ(count(first, "from "), 0u) << first;
  EXPECT_NE(last.find(" 4 tiles,"), std::string::npos) << last;
  EXPECT_NE(last.find(" 0 B sent"), std::string::npos) << last;
  EXPECT_EQ(count(last, "  to "), 0u) << last;
  EXPECT_EQ(count(last, "from "), 3u) << last;
}

TEST(Plot, DrawsEveryStepOnItsLane) {
  const Setting setting = causal_ring();
  const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
  const std::vector<Cost> costs = cost(schedules, setting.topology, Rates{});
  const std::string svg = plot(schedules, costs);
  size_t steps = 0;
  for (const Schedule& schedule : schedules) steps += schedule.steps.size();
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_EQ(count(svg, "<title>"), steps);
  EXPECT_EQ(count(svg, ">compute</text>"), schedules.size());
  EXPECT_EQ(count(svg, ">transfer</text>"), schedules.size());
  EXPECT_NE(svg.find("rank 3, step 0: "), std::string::npos);
  EXPECT_NE(svg.find(" us</text>"), std::string::npos);
  EXPECT_EQ(count(svg, "nan"), 0u);
}

TEST(Plot, EscapesAndTakesNothing) {
  EXPECT_NE(plot({}, {}).find("</svg>"), std::string::npos);
  Schedule schedule;
  schedule.strategy = "<a&\"b\">";
  const std::string svg = plot({{schedule}}, {{Cost{}}});
  EXPECT_NE(svg.find("&lt;a&amp;&quot;b&quot;&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<a&"), std::string::npos);
}

TEST(Names, OfSchedules) {
  EXPECT_EQ(name(StepKind::kAttendBackward), "attend_backward");
  EXPECT_EQ(name(StepKind::kFill), "fill");
  EXPECT_EQ(name(Lane::kTransfer), "transfer");
  EXPECT_EQ(name(Space::kWorkspace), "workspace");
  EXPECT_EQ(name(Quantity::kDelta), "delta");
}

}  // namespace
}  // namespace longspan::test
