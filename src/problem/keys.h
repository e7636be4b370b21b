// The keys of the problem text and the syntax of their values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "longspan/problem.h"

namespace longspan::keys {

inline constexpr int64_t kMaxHeads = 1 << 20;

struct Key {
  KeyInfo info;
  bool (*accepts)(std::string_view value);
};

/// In canonical order.
std::span<const Key> all();
/// Null for an unknown name.
const Key* find(std::string_view name);
/// invalid_argument naming key, value and what is allowed.
Status check(std::string_view name, std::string_view value);

/// Null where the text is anything else.
std::optional<int64_t> integer(std::string_view text);
std::optional<uint64_t> seed(std::string_view text);
std::optional<double> real(std::string_view text);  // finite
/// Integers of [least, most].
std::optional<std::vector<int64_t>> counts(std::string_view text, char separator, int64_t least,
                                           int64_t most);

}  // namespace longspan::keys
