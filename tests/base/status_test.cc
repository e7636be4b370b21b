// Errors and declines as values.
#include "longspan/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "longspan/decline.h"
#include "longspan/tensor.h"

namespace longspan {
namespace {

Error bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), "here"}; }

TEST(Error, TextNamesCodePlaceAndMessage) {
  EXPECT_EQ(bad("x is 3").text(), "invalid_argument (here): x is 3");
  EXPECT_EQ((Error{ErrorCode::kPeerLost, "rank 2 left", ""}).text(), "peer_lost: rank 2 left");
}

TEST(Error, EveryCodeHasItsName) {
  EXPECT_EQ(name(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(name(ErrorCode::kUnsupported), "unsupported");
  EXPECT_EQ(name(ErrorCode::kGuardFailed), "guard_failed");
  EXPECT_EQ(name(ErrorCode::kPeerLost), "peer_lost");
  EXPECT_EQ(name(ErrorCode::kTimeout), "timeout");
  EXPECT_EQ(name(ErrorCode::kOutOfMemory), "out_of_memory");
  EXPECT_EQ(name(ErrorCode::kDriver), "driver");
  EXPECT_EQ(name(ErrorCode::kInternal), "internal");
}

TEST(Decline, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(DeclineCode::kOff); ++code) {
    const std::string_view text = name(static_cast<DeclineCode>(code));
    EXPECT_FALSE(text.empty());
    EXPECT_TRUE(names.insert(text).second) << text;
  }
  const Verdict offer = Offer{"tiles"};
  const Verdict decline = Decline{DeclineCode::kHeads, "3 heads"};
  EXPECT_EQ(declined(offer), nullptr);
  ASSERT_NE(declined(decline), nullptr);
  EXPECT_EQ(declined(decline)->detail, "3 heads");
}

Result<std::unique_ptr<int>> half(int value) {
  if (value % 2 != 0) return bad("odd " + std::to_string(value));
  return std::make_unique<int>(value / 2);
}

Result<int> quarter(int value) {
  LONGSPAN_TRY(const std::unique_ptr<int> once, half(value));
  LONGSPAN_TRY(std::unique_ptr<int> twice, half(*once));
  return *twice;
}

Status divides_by_four(int value) {
  LONGSPAN_CHECK_OK(Status{});
  if (Result<int> result = quarter(value); !result.ok()) return std::move(result).error();
  return {};
}

TEST(Result, MacrosPassValuesAndErrorsOn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "odd 3");
  EXPECT_EQ(quarter(7).error().message, "odd 7");
  EXPECT_TRUE(divides_by_four(8).ok());
  EXPECT_EQ(divides_by_four(2).error().message, "odd 1");
}

TEST(DType, NamesParseAndSizesFit) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(*parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(size_of(DType::kF64) + size_of(DType::kF32), 12);
  EXPECT_EQ(size_of(DType::kF16) + size_of(DType::kBF16), 4);
  EXPECT_EQ(accumulator(DType::kF64), DType::kF64);
  EXPECT_EQ(accumulator(DType::kBF16), DType::kF32);
  EXPECT_EQ(parse_dtype("fp32").error().text(),
            "invalid_argument (tensor): dtype \"fp32\" is unknown; one of f64, f32, f16, bf16");
}

TEST(TensorView, OffsetsFollowTheStrides) {
  // sbhd in memory: [seq 3, batch 2, heads 4, dim 5].
  const TensorView sbhd{nullptr, DType::kF16, 2, 3, 4, 5, 20, 40, 5};
  EXPECT_EQ(sbhd.rows(), 6);
  EXPECT_EQ(sbhd.offset(0, 0), 0);
  EXPECT_EQ(sbhd.offset(2, 1), 2 * 40 + 5);
  EXPECT_EQ(sbhd.offset(4, 3), 20 + 40 + 15) << "row 4 is batch 1, token 1";
  EXPECT_EQ(sbhd.extent_bytes(), 3 * 2 * 4 * 5 * 2);
  const TensorView packed = packed_view(nullptr, DType::kF64, 7, 2, 3);
  EXPECT_EQ(packed.offset(6, 1), 6 * 6 + 3);
  EXPECT_EQ(packed.extent_bytes(), 7 * 2 * 3 * 8);
  EXPECT_EQ(packed_view(nullptr, DType::kF64, 0, 2, 3).extent_bytes(), 0);
  // 64-bit: offsets beyond 2^31 elements.
  const TensorView large = packed_view(nullptr, DType::kBF16, int64_t{1} << 31, 32, 128);
  EXPECT_EQ(large.offset((int64_t{1} << 31) - 1, 31), (int64_t{1} << 43) - 128);
  EXPECT_EQ(large.extent_bytes(), int64_t{1} << 44);
}

}  // namespace
}  // namespace longspan
