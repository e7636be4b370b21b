// What was prepared in this process, by what it was asked for.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "longspan/status.h"

namespace longspan::xla {

/// Compiled programs name what they run by text, so that they may come from another process; here
/// the text becomes an object, once.
struct Asked {
  std::string_view problem;
  std::string_view request;
  int ordinal = 0;  // of the device
};

/// Thread-safe. Objects live as long as the process. One that failed is tried again when next asked
/// for.
template <class Value>
class Registry {
 public:
  using Make = Result<std::shared_ptr<Value>> (*)(const Asked& asked);

  explicit Registry(Make make) : make_(make) {}

  Result<std::shared_ptr<Value>> find(const Asked& asked) {
    const std::string key = fmt::format("{}\n{}\n{}", asked.problem, asked.request, asked.ordinal);
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    LONGSPAN_TRY(std::shared_ptr<Value> value, make_(asked));
    values_.emplace(key, value);
    return value;
  }

 private:
  const Make make_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Value>> values_;
};

}  // namespace longspan::xla
