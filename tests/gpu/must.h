// What tests of ranks on GPUs take for granted.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "longspan/device.h"
#include "longspan/status.h"

namespace longspan::testing {

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }

/// A rank's device: one for all, or all devices in turn.
inline Device device_of(int rank, bool spread) {
  return must(cuda_device(spread ? rank % must(cuda_device_count()) : 0));
}

}  // namespace longspan::testing
