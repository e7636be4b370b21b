// What a store may not hold: every part of a manifest that is wrong is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "double_store.h"
#include "providers/prepared/manifest.h"
#include "providers/prepared/sha256.h"

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
  store.add(manifest, "good.json");
  const auto kernel = store.open();
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(kernel.error().message, HasSubstr(GetParam().part));
  EXPECT_THAT(
      kernel.error().message,
      ::testing::AnyOf(HasSubstr("good.json"), HasSubstr("double.so"), HasSubstr("nowhere.so")));
}

const Bad kBad[] = {
    {"AnotherFormat", "format 1, read is format 3: prepare", [](json& m) { m["format"] = 1; }},
    {"NoFormat", "field format is missing", [](json& m) { m.erase("format"); }},
    {"FormatOfAnotherType", "field format is no integer", [](json& m) { m["format"] = "2"; }},
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

const Bad kInconsistent[] = {
    {"PackedWithoutRowCounts", "serves packed rows, but no step is given cumulative_q",
     [](json& m) { m["serves"]["layout"] = "packed"; }},
    {"WindowWithoutWidths", "serves a window, but no step is given left",
     [](json& m) { m["serves"]["mask"] = "window"; }},
    {"WidthsWithoutAWindow", "does not serve a window, but a step is given left",
     [](json& m) {
       m["entries"][0]["symbol"] = "window";
       m["entries"][0]["signature"] = kForwardWindow;
     }},
    {"RowCountsWithoutPacks", "does not serve packed rows, but a step is given cumulative_q",
     [](json& m) {
       m["entries"][0]["symbol"] = "records_packed";
       m["entries"][0]["signature"] = kForwardPacked;
     }},
    {"TensorsOfAnotherType", "slot mQ takes bfloat16, q is float16",
     [](json& m) { m["serves"]["dtype"] = "f16"; }},
    {"BackwardWithAForwardsEntry", "no step is given dout",
     [](json& m) { m["serves"]["direction"] = "backward"; }},
    {"TwoEntriesOfOneRole", "two entries are called main",
     [](json& m) { m["entries"].push_back(m["entries"][0]); }},
    {"AnEntryThatNoStepRuns", "no step runs entry spare",
     [](json& m) {
       m["entries"].push_back(m["entries"][0]);
       m["entries"][1]["role"] = "spare";
     }},
};

INSTANTIATE_TEST_SUITE_P(Kernels, Refusals, ::testing::ValuesIn(kInconsistent),
                         [](const auto& info) { return std::string(info.param.name); });

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

/// What a chain of kernels would get wrong without a word.
TEST(Contract, ChainsThatLeaveSomethingOut) {
  const std::pair<const char*, std::function<void(json&)>> chains[] = {
      {"no step is given dv", [](json& m) { m["steps"].erase(4); }},
      {"no step runs entry pre", [](json& m) { m["steps"].erase(0); }},
      {"slot mdK is given dk_sum, which is no buffer of it",
       [](json& m) { m["buffers"].erase(3); }},
      {"two buffers are called dk_sum", [](json& m) { m["buffers"][4] = m["buffers"][3]; }},
      {"buffer dv_sum has width 8, at least 16 is needed",
       [](json& m) { m["buffers"][4]["width"] = 8; }},
      {"buffer dk_sum is of q per row, it should be of k per row",
       [](json& m) { m["buffers"][3]["of"] = "q"; }},
      {"buffer lse_log2 is of q per tile, it should be of q per row",
       [](json& m) { m["buffers"][1]["per"] = "tile"; }},
      {"buffer dv_sum is added to, but nobody clears it before",
       [](json& m) { m["buffers"][4]["cleared_by"] = "entry"; }},
      {"slot scale is a float32, which is not what it is given",
       [](json& m) { m["steps"][2]["given"]["scale"] = "tokens_q"; }},
      {"slot mdQ is a tensor, which is not what it is given",
       [](json& m) { m["steps"][2]["given"]["mdQ"] = "sizes"; }},
      {"slot mdQaccum takes float32, dq_sum is int32",
       [](json& m) { m["buffers"][2]["dtype"] = "int32"; }},
      {"serves a deterministic backward, but no step is given dq_turns",
       [](json& m) { m["serves"]["deterministic"] = true; }},
  };
  for (const auto& [part, change] : chains) {
    json manifest = backward_manifest("chain", "causal");
    change(manifest);
    DoubleStore store;
    store.add(manifest);
    const auto kernel = store.open();
    ASSERT_FALSE(kernel.ok()) << part;
    EXPECT_THAT(kernel.error().message, HasSubstr(part));
  }
  json turns = backward_manifest("chain", "causal", true);
  turns["serves"]["deterministic"] = false;
  DoubleStore store;
  store.add(turns);
  EXPECT_THAT(store.open().error().message,
              HasSubstr("does not serve a deterministic backward, but a step is given dq_turns"));
}

/// Fields that nothing else is compared with: kernels of these dims, rows and masks do not say so.
TEST(Contract, AFieldThatWasChangedIsNoticed) {
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"dim", 24}, {"group", 4}, {"mask", "causal"}}) {
    json manifest = good();
    manifest["checksum"] = checksum_of(manifest);
    manifest["serves"][field] = value;
    DoubleStore store;
    store.write("good.json", manifest.dump(1));
    const auto kernel = store.open();
    ASSERT_FALSE(kernel.ok()) << field;
    EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(kernel.error().message, HasSubstr("good.json is not as it was written"));
    EXPECT_THAT(kernel.error().message, HasSubstr("prepare the store anew"));
  }
}

/// As longspan.prepare counts it, whatever the order and the spaces of the file.
TEST(Contract, TheChecksumIsThatOfPython) {
  const json manifest =
      json::parse(R"({"b": [1, true, "\u00e9\" x"], "checksum": "0", "a": {"z": -3, "y": {}}})");
  EXPECT_EQ(checksum_of(manifest),
            sha256_of_text("{\"a\":{\"y\":{},\"z\":-3},\"b\":[1,true,\"\\u00e9\\\" x\"]}"));
}

TEST(Contract, TextsThatAreNoManifest) {
  const std::string twice = R"({"format": 2, "format": 2})";
  const std::string deep = R"({"format": )" + std::string(100000, '[') + std::string(100000, ']');
  const std::pair<std::string, const char*> texts[] = {
      {"", "the 0 bytes are not JSON"},
      {"{\"format\": 2,", "are not JSON"},
      {"[]", "is no JSON object"},
      {twice, "two fields \"format\" in one object"},
      {deep + "}", "nested deeper than 8"},
      {std::string(2 << 20, ' '), "has more than 1048576 bytes"},
  };
  for (const auto& [text, part] : texts) {
    DoubleStore store;
    store.write("good.json", text);
    const auto kernel = store.open();
    ASSERT_FALSE(kernel.ok()) << part;
    EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(kernel.error().message, HasSubstr(part));
    EXPECT_THAT(kernel.error().message, HasSubstr("good.json"));
  }
}

TEST(Contract, FoldersAndLinksThatLeadNowhereAreNoManifests) {
  DoubleStore folder;
  std::filesystem::create_directory(folder.folder() + "/good.json");
  EXPECT_THAT(folder.open().error().message, HasSubstr("cannot be read: Is a directory"));
  DoubleStore link;
  std::filesystem::create_symlink("nowhere", link.folder() + "/good.json");
  EXPECT_THAT(link.open().error().message, HasSubstr("cannot be read: No such file"));
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
  store.write("store.json", R"({"format": 1, "tvm_ffi": "x", "runtime": ""})");
  EXPECT_THAT(store.read().error().message,
              HasSubstr("is not of format 3: prepare the store anew"));
}

TEST(Contract, StoresWithUnknownFields) {
  DoubleStore store;
  store.write("store.json", R"({"format": 3, "tvm_ffi": "x", "runtime": "", "cuda": "y"})");
  EXPECT_THAT(store.read().error().message, HasSubstr("field cuda is unknown"));
}

}  // namespace
}  // namespace longspan::prepared::testing
