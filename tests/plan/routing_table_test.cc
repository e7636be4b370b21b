// Tables of measured times: what is read, what is refused, and which row stands for a case.
#include "longspan/routing_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace longspan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json row(int64_t length = 8192, const std::string& dtype = "bf16", int64_t dim = 128) {
  return {{"device", "cuda 9.0"}, {"direction", "forward"},
          {"dtype", dtype},       {"dim", dim},
          {"dim_v", dim},         {"mask", "causal"},
          {"packed", false},      {"deterministic", false},
          {"length", length},     {"median_us", {{"hopper", 812.5}, {"cudnn", 975}}}};
}

json table(const json& rows) {
  return {{"format", 1}, {"fingerprint", {{"device", "a GPU"}}}, {"rows", rows}};
}

RoutingTable read(const json& rows) { return RoutingTable::from_json(table(rows).dump()).value(); }

RoutingCase causal(int64_t length, int64_t dim = 128) {
  return {
      .device = "cuda 9.0", .dim = dim, .dim_v = dim, .mask = MaskClass::kCausal, .length = length};
}

void expect_refused(const json& value, const std::string& words) {
  const auto result = RoutingTable::from_json(value.dump());
  ASSERT_FALSE(result.ok()) << value.dump();
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr(words));
}

void expect_row_refused(const char* field, const json& value, const std::string& words) {
  json changed = row();
  changed[field] = value;
  expect_refused(table({row(4096), changed}), words);
}

TEST(RoutingTable, TheLibrarysOwnIsValid) {
  const auto own = measured_routing_table();
  EXPECT_EQ(RoutingTable::from_json(own->to_json()).value().rows, own->rows);
}

TEST(RoutingTable, IsReadFastestFirstAndWrittenAlike) {
  const RoutingTable read_table = read({row(), row(2048)});
  ASSERT_EQ(read_table.rows.size(), 2u);
  EXPECT_EQ(read_table.rows[0].measured, causal(8192));
  EXPECT_EQ(read_table.rows[0].times,
            (std::vector<MeasuredTime>{{"hopper", 812.5}, {"cudnn", 975}}));
  EXPECT_EQ(read_table.fingerprint.at("device"), "a GPU");
  const RoutingTable again = RoutingTable::from_json(read_table.to_json()).value();
  EXPECT_EQ(again.rows, read_table.rows);
  EXPECT_EQ(again.to_json(), read_table.to_json());
}

TEST(RoutingTable, FilesAreNamedInErrors) {
  const std::string path = testing::TempDir() + "routing_table.json";
  EXPECT_THAT(RoutingTable::load(path + ".none").error().message, HasSubstr("cannot be read"));
  std::ofstream(path) << table(json::array({row()})).dump();
  EXPECT_EQ(RoutingTable::load(path).value().rows.size(), 1u);
  std::ofstream(path) << "[]";
  EXPECT_THAT(RoutingTable::load(path).error().message, HasSubstr(path));
}

TEST(RoutingTable, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(RoutingTable::from_json("{").error().message, HasSubstr("bench --calibrate writes"));
  expect_refused(json::array(), "no JSON object");
  json value = table(json::array({row()}));
  value["comment"] = "";
  expect_refused(value, "unknown field \"comment\"");
  value = table(json::array({row()}));
  value.erase("fingerprint");
  expect_refused(value, "no field \"fingerprint\"");
  value = table(json::array({row()}));
  value["format"] = 2;
  expect_refused(value, "\"format\" is 2; it must be 1");
  value = table(json::array({row()}));
  value["fingerprint"]["device"] = 90;
  expect_refused(value, "it must be a text");
  expect_refused(table("none"), "\"rows\" is no JSON list");
  expect_refused(table({row(), row()}), "row 1 is of the case of another row");
}

TEST(RoutingTable, RefusesRowsThatAreWrong) {
  expect_row_refused("speed", 1, "row 1 has the unknown field \"speed\"");
  expect_row_refused("device", 90, "row 1: \"device\" is 90");
  expect_row_refused("direction", "both", "one of forward, backward");
  expect_row_refused("dtype", "fp8", "one of f64, f32, f16, bf16");
  expect_row_refused("dim", 0, "an integer from 1 to 576");
  expect_row_refused("dim_v", 128.5, "an integer from 1 to 576");
  expect_row_refused("mask", "none", "one of full, causal, window");
  expect_row_refused("packed", 1, "true or false");
  expect_row_refused("deterministic", "no", "true or false");
  expect_row_refused("length", -1, "an integer from 1");
  expect_row_refused("median_us", json::object(), "time of each provider");
  expect_row_refused("median_us", {{"fa5", 1}}, "fa5 is none");
  expect_row_refused("median_us", {{"cudnn", 0}}, "numbers above 0");
  expect_row_refused("median_us", {{"cudnn", "fast"}}, "numbers above 0");
  for (const char* device : {"", "gpu", "cuda", "cuda 9", "cuda 9.", "cuda 9.0 H200", "cuda x.y"}) {
    expect_row_refused("device", device, "cpu, or cuda and a compute capability");
  }
}

TEST(RoutingTable, RefusesTextsThatSayThingsTwiceOrTooDeep) {
  std::string text = table(json::array({row()})).dump();
  const std::string times = "\"median_us\":{";
  text.insert(text.find(times) + times.size(), "\"hopper\":1,");
  EXPECT_THAT(RoutingTable::from_json(text).error().message, HasSubstr("two fields \"hopper\""));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(RoutingTable::from_json("{\"format\":" + deep + "}").error().message,
              HasSubstr("nested deeper"));
  EXPECT_THAT(RoutingTable::load("/").error().message, HasSubstr("Is a directory"));
}

TEST(RoutingTable, TheNearestLengthStandsForACase) {
  const RoutingTable lengths = read({row(2048), row(8192), row(32768)});
  const auto found = [&](int64_t length) { return lengths.find(causal(length))->measured.length; };
  EXPECT_EQ(found(0), 2048);
  EXPECT_EQ(found(4000), 2048);
  EXPECT_EQ(found(4096), 2048);  // as near as 8192: the shorter one
  EXPECT_EQ(found(4200), 8192);
  EXPECT_EQ(found(1 << 30), 32768);
}

TEST(RoutingTable, TheLeastDimsThatHoldStandForACase) {
  json wide = row(8192, "bf16", 192);
  wide["dim_v"] = 128;
  const RoutingTable dims = read({row(8192, "bf16", 256), wide, row()});
  const auto found = [&](int64_t dim, int64_t dim_v) -> int64_t {
    RoutingCase wanted = causal(8192, dim);
    wanted.dim_v = dim_v;
    const RoutingRow* const best = dims.find(wanted);
    return best == nullptr ? 0 : best->measured.dim;
  };
  EXPECT_EQ(found(72, 72), 128);
  EXPECT_EQ(found(136, 64), 192);
  EXPECT_EQ(found(136, 136), 256);
  EXPECT_EQ(found(264, 8), 0);
}

TEST(RoutingTable, TypesOf16BitsStandForEachOther) {
  const RoutingTable types = read({row(2048, "f16"), row(8192)});
  RoutingCase wanted = causal(2048);
  EXPECT_EQ(types.find(wanted)->measured.length, 8192);  // its own type, though another length
  EXPECT_EQ(read(json::array({row(2048, "f16")})).find(wanted)->measured.dtype, DType::kF16);
  wanted.dtype = DType::kF32;
  EXPECT_EQ(types.find(wanted), nullptr);
}

TEST(RoutingTable, OtherCasesAreNotItsOwn) {
  const RoutingTable one = read(json::array({row()}));
  const auto missed = [&](auto change) {
    RoutingCase wanted = causal(8192);
    change(wanted);
    return one.find(wanted) == nullptr;
  };
  EXPECT_FALSE(missed([](RoutingCase&) {}));
  EXPECT_TRUE(missed([](RoutingCase& c) { c.device = "cuda 10.0"; }));
  EXPECT_TRUE(missed([](RoutingCase& c) { c.direction = Direction::kBackward; }));
  EXPECT_TRUE(missed([](RoutingCase& c) { c.mask = MaskClass::kWindow; }));
  EXPECT_TRUE(missed([](RoutingCase& c) { c.packed = true; }));
  EXPECT_TRUE(missed([](RoutingCase& c) { c.deterministic = true; }));
}

RoutingCase case_of(const std::string& more, int64_t rows = 8192) {
  const Problem problem = parse_problem("dtype=bf16 heads=4/2 dim=64 dim_v=32 " + more).value();
  return routing_case(problem, Direction::kBackward,
                      {.name = "cuda:1", .ordinal = 1, .capability = 90}, rows);
}

TEST(RoutingCases, AreThoseOfTheProblem) {
  const RoutingCase dense = case_of("lengths=4096,4096 mask=causal");
  EXPECT_EQ(dense.device, "cuda 9.0");
  EXPECT_EQ(dense.direction, Direction::kBackward);
  EXPECT_EQ(dense.dim, 64);
  EXPECT_EQ(dense.dim_v, 32);
  EXPECT_EQ(dense.mask, MaskClass::kCausal);
  EXPECT_FALSE(dense.packed);
  EXPECT_EQ(dense.length, 4096);
  EXPECT_EQ(case_of("lengths=4096,4096 mask=causal", 4096).length, 2048);  // half of the rows
  EXPECT_EQ(case_of("lengths=8192 mask=none").mask, MaskClass::kFull);
  EXPECT_EQ(case_of("lengths=8192 mask=causal window=128,0").mask, MaskClass::kWindow);
  EXPECT_EQ(case_of("lengths=8192 mask=none chunk=128").mask, MaskClass::kWindow);
  EXPECT_TRUE(case_of("lengths=4096,0,4096 mask=none").packed);
  EXPECT_EQ(case_of("lengths=4096,0,4096 mask=none").length, 4096);
  EXPECT_EQ(case_of("lengths=0 mask=none", 0).length, 0);
  EXPECT_TRUE(case_of("lengths=8192 mask=none deterministic=true").deterministic);
  EXPECT_EQ(routing_case(parse_problem("dtype=f32 heads=1/1 dim=8 lengths=8 mask=none").value(),
                         Direction::kForward, {}, 8)
                .device,
            "cpu");
}

}  // namespace
}  // namespace longspan
