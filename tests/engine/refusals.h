// What a refused call looks like.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "longspan/status.h"

namespace longspan::testkit {

template <class T>
void expect_refused(const Result<T>& result, ErrorCode code, const std::string& text) {
  ASSERT_FALSE(result.ok()) << "expected: " << text;
  EXPECT_EQ(result.error().code, code) << result.error().text();
  EXPECT_THAT(result.error().text(), ::testing::HasSubstr(text));
}

template <class T>
void expect_invalid(const Result<T>& result, const std::string& text) {
  expect_refused(result, ErrorCode::kInvalidArgument, text);
}

}  // namespace longspan::testkit
