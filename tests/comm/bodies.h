// Test bodies that every communicator must pass. Each rank runs them at the same time, in a thread
// or a process of its own.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "longspan/communicator.h"

namespace longspan::test {

struct Body {
  std::string_view name;
  void (*run)(Communicator& communicator);
};

/// All ranks live to the end, and the communicator is good afterwards.
std::span<const Body> healthy_bodies();

inline constexpr std::chrono::milliseconds kPatience{30000};

}  // namespace longspan::test
