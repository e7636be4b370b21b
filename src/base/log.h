// How the library calls a Log.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "longspan/log.h"

namespace longspan {

/// What the callback throws ends here.
void deliver(const Log& log, LogLevel level, const std::string& message);

/// Formats only where somebody listens. Call it while no lock is held.
template <class... T>
void say(const Log& log, LogLevel level, fmt::format_string<T...> format, T&&... values) {
  if (log) deliver(log, level, fmt::format(format, std::forward<T>(values)...));
}

}  // namespace longspan
