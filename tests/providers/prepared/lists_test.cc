// Parameter lists: known by names and kinds, never by their number.
#include "providers/prepared/lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "double_store.h"
#include "providers/prepared/frame.h"
#include "providers/prepared/prepared.h"
#include "scene.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kNoneType = 0, kInt = 1, kFloat = 3, kPointer = 4, kTuple = 71;

Result<std::vector<BoundSlot>> matched(const char* list, const std::string& signature) {
  const KnownList* const known = known_list(list);
  EXPECT_NE(known, nullptr);
  LONGSPAN_TRY(const std::vector<Slot> slots, parse_signature(signature));
  return match(*known, slots);
}

std::string refusal_of(const char* list, const std::string& signature) {
  const auto result = matched(list, signature);
  return result.ok() ? "taken" : result.error().message;
}

/// `signature` with `from` replaced.
std::string with(std::string signature, const std::string& from, const std::string& to) {
  const size_t place = signature.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return signature.replace(place, from.size(), to);
}

struct Known {
  const char* symbol;
  const char* list;
  const char* signature;
  size_t slots;
};

const Known kKnown[] = {
    {"frost23", "frost.sm90", kFrost23, 23},
    {"frost27", "frost.sm100_27", kFrost27, 27},
    {"frost28", "frost.sm100_28", kFrost28, 28},
    {"frost_gated30", "frost.sm100_gated_30", kFrostGated30, 30},
    {"frost_decode30", "frost.sm100_decode_30", kFrostDecode30, 30},
    {"frost31", "frost.sm100_31", kFrost31, 31},
    {"frost37", "frost.sm107_37", kFrost37, 37},
    {"frost38", "frost.sm100_38", kFrost38, 38},
};

TEST(Lists, EveryLineIsUnderstood) {
  EXPECT_EQ(known_lists().size(), 16u);
  for (const KnownList& list : known_lists()) EXPECT_EQ(list.slots.size(), list.count) << list.name;
}

TEST(Lists, EveryKnownSignatureIsTaken) {
  for (const Known& k : kKnown) {
    const auto slots = matched(k.list, k.signature);
    ASSERT_TRUE(slots.ok()) << slots.error().text();
    EXPECT_EQ(slots->size(), k.slots) << k.list;
  }
  for (const auto& [list, signature] :
       {std::pair{"fa4.forward", kForwardFull}, std::pair{"fa4.forward", kForwardWindow},
        std::pair{"fa4.backward_pre", kBackwardPre}, std::pair{"fa4.backward", kBackward},
        std::pair{"fa4.backward_post", kBackwardPost}}) {
    EXPECT_EQ(refusal_of(list, signature), "taken");
  }
}

/// Contract alone: no device of these architectures has ever run them.
TEST(Lists, ManifestsOfEnginesForOtherDevicesAreReadAndDeclined) {
  size_t others = 0;
  for (const Known& k : kKnown) {
    if (k.list == std::string("frost.sm90")) continue;
    ++others;
    DoubleStore folder;
    for (const char* mask : {"full", "causal"}) {
      json manifest = frost_manifest(k.symbol, k.list, k.signature);
      manifest["name"] = mask;
      manifest["architecture"] = k.list == std::string("frost.sm107_37") ? "sm_107a" : "sm_100a";
      manifest["serves"]["mask"] = mask;
      folder.add(manifest);
    }
    const auto store = folder.read();
    ASSERT_TRUE(store.ok()) << store.error().text();
    for (const Manifest& m : (*store)->manifests()) {
      const auto kernel = (*store)->kernel(m);  // its signature is the known one
      EXPECT_TRUE(kernel.ok()) << kernel.error().text();
    }
    TileProblem p = problem();
    p.dim_qk = p.dim_v = 512;
    p.capacity_q = p.capacity_k = 256;
    const auto found = choose(p, **store);
    const auto* const decline = std::get_if<Decline>(&found);
    ASSERT_NE(decline, nullptr) << k.list;
    EXPECT_THAT(decline->detail, HasSubstr("are never run) of forward bf16, dim 512")) << k.list;
  }
  EXPECT_EQ(others, 7u);
}

TEST(Lists, DevicesOfOtherArchitecturesAreDeclined) {
  Device b200 = h200();
  b200.capability = 100;
  const Verdict verdict = kPrepared.consider(problem(), b200);
  const Decline* const decline = declined(verdict);
  ASSERT_NE(decline, nullptr);
  EXPECT_EQ(decline->code, DeclineCode::kDevice);
  EXPECT_THAT(decline->detail, HasSubstr("compute capability 10.0 of cuda:0 is not 9.0"));
}

TEST(Lists, EqualNumbersOfSlotsAreNoProof) {
  EXPECT_THAT(refusal_of("frost.sm107_37", kFrostFp8),
              HasSubstr("slot 26 of a frost.sm107_37 entry: descale_q_ptr stands where "
                        "score_max_ptr is known"));
  EXPECT_THAT(refusal_of("frost.sm100_decode_30", kFrostGated30),
              HasSubstr("gate_ptr stands where ragged_q_addr is known"));
}

TEST(Lists, AnUnknownSlotIsRefused) {
  EXPECT_THAT(refusal_of("fa4.forward", std::string(kForwardFull) + ", mRotary: None"),
              HasSubstr("unknown slot mRotary, 18 are known"));
  EXPECT_THAT(refusal_of("frost.sm100_31", kFrost37), HasSubstr("slot 30"));
}

TEST(Lists, AMissingSlotIsRefused) {
  EXPECT_THAT(refusal_of("fa4.forward", with(kForwardFull, ", mCuTotalSplitsMBlocks: None", "")),
              HasSubstr("mCuTotalSplitsMBlocks is missing"));
}

TEST(Lists, SlotsInAnotherOrderAreRefused) {
  EXPECT_THAT(refusal_of("fa4.forward",
                         with(with(kForwardFull, "mSeqUsedQ", "x"), "mSeqUsedK", "mSeqUsedQ")),
              HasSubstr("x stands where mSeqUsedQ is known"));
}

TEST(Lists, AnotherKindIsRefused) {
  EXPECT_THAT(refusal_of("fa4.forward",
                         with(kForwardFull, "softmax_scale: float32", "softmax_scale: int32")),
              HasSubstr("softmax_scale is a int32, known is a float32"));
  EXPECT_THAT(refusal_of("frost.sm90", with(kFrost23, "q_ptr: DataPointer", "q_ptr: int64")),
              HasSubstr("q_ptr is a int64, known is a pointer"));
}

TEST(Lists, WhatIsSwitchedOnIsRefused) {
  EXPECT_THAT(refusal_of("fa4.forward", with(kForwardFull, "mPageTable: None",
                                             "mPageTable: Tensor([n30, n31], int32)")),
              HasSubstr("mPageTable is switched on (tensor), only None is supported"));
  EXPECT_THAT(
      refusal_of("frost.sm100_38", with(kFrost38, "bias_ptr: None", "bias_ptr: DataPointer")),
      HasSubstr("bias_ptr is switched on"));
  EXPECT_THAT(refusal_of("frost.sm100_31",
                         with(kFrost31, "score_max_ptr: None", "score_max_ptr: DataPointer")),
              HasSubstr("score_max_ptr is switched on"));
}

TEST(Lists, MoreThanAFrameHoldsIsRefused) {
  EXPECT_TRUE(fits_frame(*matched("frost.sm100_38", kFrost38)).ok());
  const std::vector<BoundSlot> many(41, {.slot = {.name = "x", .kind = "int32"}});
  EXPECT_THAT(fits_frame(many).error().message, HasSubstr("41 slots, 0 tensors, 0 tuples"));
  const std::vector<BoundSlot> tuples(13, {.slot = {.name = "x", .kind = "nones", .items = 2}});
  EXPECT_FALSE(fits_frame(tuples).ok());
  const std::vector<BoundSlot> wide(1, {.slot = {.name = "x", .kind = "nones", .items = 7}});
  EXPECT_THAT(fits_frame(wide).error().message, HasSubstr("slot x is a tuple of 7, more than 6"));
  const std::vector<BoundSlot> tensors(17, {.slot = {.name = "x", .kind = "tensor"}});
  EXPECT_FALSE(fits_frame(tensors).ok());
}

TEST(Lists, TextOfUnknownFormIsRefused) {
  for (const char* text : {"mQ", "mQ: Map[int32]", "mQ: Tuple[int32, int64]", ": int32", ""}) {
    EXPECT_FALSE(parse_signature(text).ok()) << text;
  }
}

/// The last call's arguments by the names of their slots.
std::map<std::string, Seen> arguments_of(const Known& known, const Values& values) {
  DoubleStore store;
  store.add(frost_manifest(known.symbol, known.list, known.signature));
  const auto kernel = store.open();
  EXPECT_TRUE(kernel.ok()) << kernel.error().text();
  EXPECT_TRUE((*kernel)->run(values).ok());
  EXPECT_EQ(record().count, static_cast<int64_t>(known.slots));
  const auto slots = parse_signature(known.signature);
  std::map<std::string, Seen> result;
  for (size_t i = 0; i < known.slots; ++i) result[(*slots)[i].name] = record().arguments[i];
  return result;
}

/// What a slot is given wherever a list has it.
struct Wanted {
  const char* slot;
  int32_t type;
  int64_t integer;
  double number;
  std::vector<int64_t> items;
};

void expect_given(const Wanted& wanted, const Seen& seen) {
  SCOPED_TRACE(wanted.slot);
  EXPECT_EQ(seen.type, wanted.type);
  if (wanted.type == kFloat) {
    EXPECT_DOUBLE_EQ(seen.number, wanted.number);
  } else if (wanted.type == kTuple) {
    EXPECT_EQ(std::vector<int64_t>(seen.items, seen.items + seen.size), wanted.items);
  } else {
    EXPECT_EQ(seen.integer, wanted.integer);
  }
}

/// Slots that are off hold their exact values, and the others what they stand for, in every list.
TEST(Lists, SlotsHoldTheirValuesAndDefaults) {
  int64_t rows[4] = {};
  Values v;
  v.scale = 0.25;
  v.sizes = {1, 4, 2, 100, 200, 0};
  v.tokens_q = 256;
  v.stream.handle = &v;
  v[Name::kQ].data = rows;
  v[Name::kQ].strides = {1000, 10, 5, 1};
  v[Name::kLengthsQ].data = rows + 1;
  const auto address = [](const void* p) { return reinterpret_cast<int64_t>(p); };
  const Wanted wanted[] = {
      {"q_ptr", kPointer, address(rows), 0, {}},
      {"sinks_ptr", kInt, 0, 0, {}},
      {"meta_ptr", kInt, 0, 0, {}},
      {"o_desc_ptr", kInt, 0, 0, {}},
      {"problem_size", kTuple, 0, 0, {1, 4, 2, 100, 200, 0}},
      {"q_strides", kTuple, 0, 0, {1000, 10, 5}},
      {"lse_ext", kInt, 0, 0, {}},
      {"seq_q_lens_addr", kInt, address(rows + 1), 0, {}},
      {"scale_softmax", kFloat, 0, 0.25, {}},
      {"scale_softmax_log2", kFloat, 0, 0.25 * std::numbers::log2e, {}},
      {"inv_scale_softmax", kFloat, 0, 4, {}},
      {"thd_q_lens_ptr", kNoneType, 0, 0, {}},
      {"thd_lens_form", kNoneType, 0, 0, {}},
      {"n_thd_units", kInt, 0, 0, {}},
      {"thd_max_sq", kInt, 256, 0, {}},
      {"o_partial_ptr", kNoneType, 0, 0, {}},
      {"block_table_ptr", kNoneType, 0, 0, {}},
      {"table_strides", kTuple, 0, 0, {0, 0}},
      {"table_v_strides", kNoneType, 0, 0, {}},
      {"n_pages", kInt, 0, 0, {}},
      {"gate_ptr", kNoneType, 0, 0, {}},
      {"gate_strides", kTuple, 0, 0, {0, 0, 0}},
      {"ragged_q_addr", kInt, 0, 0, {}},
      {"ragged_q_div", kInt, 1, 0, {}},
      {"score_max_ptr", kNoneType, 0, 0, {}},
      {"score_max_strides", kTuple, 0, 0, {0, 0, 0}},
      {"bias_ptr", kNoneType, 0, 0, {}},
      {"bias_extents", kTuple, 0, 0, {1, 1}},
      {"kv_mask_ptr", kNoneType, 0, 0, {}},
      {"kv_mask_batch_stride", kInt, 0, 0, {}},
      {"thd_origin_ptrs", kNoneType, 0, 0, {}},
      {"stream", kPointer, address(&v), 0, {}},
  };
  std::set<std::string> checked;
  for (const Known& known : kKnown) {
    SCOPED_TRACE(known.list);
    const std::map<std::string, Seen> arguments = arguments_of(known, v);
    for (const Wanted& w : wanted) {
      const auto found = arguments.find(w.slot);
      if (found == arguments.end()) continue;
      expect_given(w, found->second);
      checked.insert(w.slot);
    }
  }
  EXPECT_EQ(checked.size(), std::size(wanted));
}

TEST(Lists, TheInverseOfNoScaleIsOne) {
  Values v;
  v.scale = 0;
  EXPECT_EQ(arguments_of(kKnown[6], v).at("inv_scale_softmax").number, 1);
}

}  // namespace
}  // namespace longspan::prepared::testing
