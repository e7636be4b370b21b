// What a store may not hold: every part of a manifest that is wrong is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "double_store.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

json good() { return forward_manifest("good", "full", "full", kForwardFull); }

struct Bad {
  const char* name;
  std::string part;  // of the message
  std::function<void(json&)> change;
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

class Refusals : public ::testing::TestWithParam<Bad> {};

TEST_P(Refusals, NameWhatIsWrong) {
  json manifest = good();
  GetParam().change(manifest);
  DoubleStore store;
  store.write("good.json", manifest.dump());
  const auto kernel = store.open();
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(kernel.error().message, HasSubstr(GetParam().part));
  EXPECT_THAT(
      kernel.error().message,
      ::testing::AnyOf(HasSubstr("good.json"), HasSubstr("double.so"), HasSubstr("nowhere.so")));
}

const Bad kBad[] = {
    {"AnotherFormat", "format 2, read is format 1", [](json& m) { m["format"] = 2; }},
    {"NoFormat", "field format is missing", [](json& m) { m.erase("format"); }},
    {"FormatOfAnotherType", "field format is no integer", [](json& m) { m["format"] = "1"; }},
    {"NoSteps", "there are no steps", [](json& m) { m["steps"] = json::array(); }},
    {"MissingField", "field tile_q is missing", [](json& m) { m.erase("tile_q"); }},
    {"UnknownField", "field speed is unknown", [](json& m) { m["speed"] = 1; }},
    {"UnknownFieldInside", "serves: field softcap is unknown",
     [](json& m) { m["serves"]["softcap"] = true; }},
    {"UnknownFieldOfEntry", "entries[0]: field cubin is unknown",
     [](json& m) { m["entries"][0]["cubin"] = "x"; }},
    {"ListOfAnotherType", "field steps is no list", [](json& m) { m["steps"] = 3; }},
    {"UnknownEngine", "engine is fa5, none of fa4, frost", [](json& m) { m["engine"] = "fa5"; }},
    {"UnknownMask", "mask is checkered", [](json& m) { m["serves"]["mask"] = "checkered"; }},
    {"UnknownType", "dtype is fp8", [](json& m) { m["serves"]["dtype"] = "fp8"; }},
    {"DimOutOfRange", "dim is 1024, not in 8..576", [](json& m) { m["serves"]["dim"] = 1024; }},
    {"OtherVersion", "was made by 4.0.0b35 of flash-attn-4, known is 4.0.0b36",
     [](json& m) { m["versions"]["flash-attn-4"] = "4.0.0b35"; }},
    {"OtherCompiler", "by 4.9.0 of nvidia-cutlass-dsl",
     [](json& m) { m["versions"]["nvidia-cutlass-dsl"] = "4.9.0"; }},
    {"NoVersion", "by no version of apache-tvm-ffi",
     [](json& m) { m["versions"].erase("apache-tvm-ffi"); }},
    {"UnknownPackage", "names 4 packages, 3",
     [](json& m) { m["versions"]["quack-kernels"] = "0.5"; }},
    {"FileOutsideTheStore", "lies outside the store",
     [](json& m) { m["library"]["file"] = "../double.so"; }},
    {"MissingFile", "nowhere.so cannot be read",
     [](json& m) { m["library"]["file"] = "nowhere.so"; }},
    {"OtherChecksum", "its manifest says 0000",
     [](json& m) { m["library"]["sha256"] = std::string(64, '0'); }},
    {"MissingSymbol", "there is no __tvm_ffi_absent",
     [](json& m) { m["entries"][0]["symbol"] = "absent"; }},
    {"OtherSignature", "its manifest says (mQ: None)",
     [](json& m) { m["entries"][0]["signature"] = "mQ: None"; }},
    {"UnknownList", "list fa4.sideways is unknown",
     [](json& m) { m["entries"][0]["list"] = "fa4.sideways"; }},
    {"ListOfAnotherEntry", "slot 0 of a fa4.backward_pre entry: mQ stands where mO is known",
     [](json& m) { m["entries"][0]["list"] = "fa4.backward_pre"; }},
    {"StepOfNoEntry", "a step runs other, which is no entry",
     [](json& m) { m["steps"][0]["role"] = "other"; }},
    {"StepThatGivesTooMuch", "gives 1 slots something, 0 wait",
     [](json& m) { m["steps"][0]["given"]["mQ"] = "q"; }},
    {"StepThatGivesTheUnknown", "\"queries\" names nothing",
     [](json& m) { m["steps"][0]["given"]["mQ"] = "queries"; }},
    {"UnknownBuffer", "dx_sum is no known buffer",
     [](json& m) {
       m["buffers"].push_back({{"name", "dx_sum"},
                               {"dtype", "float32"},
                               {"of", "q"},
                               {"per", "row"},
                               {"width", 1},
                               {"cleared_by", "entry"}});
     }},
    {"AnInputAsBuffer", "q is no known buffer",
     [](json& m) {
       m["buffers"].push_back({{"name", "q"},
                               {"dtype", "float32"},
                               {"of", "q"},
                               {"per", "row"},
                               {"width", 1},
                               {"cleared_by", "entry"}});
     }},
};

INSTANTIATE_TEST_SUITE_P(Manifest, Refusals, ::testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Contract, AGoodManifestOpens) {
  DoubleStore store;
  store.add(good());
  const auto kernel = store.open();
  ASSERT_TRUE(kernel.ok()) << kernel.error().text();
  EXPECT_EQ((*kernel)->manifest().serves.group, 2);
}

TEST(Contract, AStepThatLeavesASlotWithoutAnything) {
  json manifest = backward_manifest("good", "causal");
  manifest["steps"][1]["given"].erase("mdV");
  DoubleStore store;
  store.add(manifest);
  const auto kernel = store.open();
  ASSERT_FALSE(kernel.ok());
  EXPECT_THAT(kernel.error().message, HasSubstr("a step of main gives mdV nothing"));
}

TEST(Contract, TextThatIsNoJson) {
  DoubleStore store;
  store.write("good.json", "{\"format\": 1,");
  EXPECT_THAT(store.open().error().message, HasSubstr("is no JSON object"));
}

TEST(Contract, HeadsThatAreNoGroups) {
  json manifest = frost_manifest("frost23", "frost.sm90", kFrost23);
  manifest["serves"]["heads_kv"] = 3;
  DoubleStore store;
  store.add(manifest);
  EXPECT_THAT(store.open().error().message, HasSubstr("4 query heads are not 2 times 3 key heads"));
}

TEST(Contract, StoresWithoutTheirFile) {
  DoubleStore store;
  std::filesystem::remove(store.folder() + "/store.json");
  const auto read = store.read();
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("run longspan prepare --out"));
}

TEST(Contract, StoresOfAnotherFormat) {
  DoubleStore store;
  store.write("store.json", R"({"format": 9, "tvm_ffi": "x", "runtime": ""})");
  EXPECT_THAT(store.read().error().message, HasSubstr("is not of format 1"));
}

TEST(Contract, StoresWithUnknownFields) {
  DoubleStore store;
  store.write("store.json", R"({"format": 1, "tvm_ffi": "x", "runtime": "", "cuda": "y"})");
  EXPECT_THAT(store.read().error().message, HasSubstr("field cuda is unknown"));
}

}  // namespace
}  // namespace longspan::prepared::testing
