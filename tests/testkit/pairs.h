// Strategies of forward and backward together.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace longspan::testkit {

struct StrategyPair {
  std::string forward;
  std::string backward;
};

inline void PrintTo(const StrategyPair& pair, std::ostream* out) {
  *out << pair.forward << "/" << pair.backward;
}

inline const std::vector<std::string>& forward_strategies() {
  static const std::vector<std::string> names = {"ring", "all_gather", "all_to_all", "hybrid"};
  return names;
}

inline const std::vector<std::string>& backward_strategies() {
  static const std::vector<std::string> names = {"ring", "all_gather", "all_to_all", "hybrid",
                                                 "head_parallel"};
  return names;
}

inline std::vector<StrategyPair> all_pairs() {
  std::vector<StrategyPair> pairs;
  for (const std::string& forward : forward_strategies()) {
    for (const std::string& backward : backward_strategies()) pairs.push_back({forward, backward});
  }
  return pairs;
}

/// Each strategy of either direction once.
inline std::vector<StrategyPair> diagonal_pairs() {
  return {{"ring", "ring"},
          {"all_gather", "all_gather"},
          {"all_to_all", "all_to_all"},
          {"hybrid", "hybrid"},
          {"ring", "head_parallel"}};
}

}  // namespace longspan::testkit
