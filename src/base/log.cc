#include "base/log.h"

namespace longspan {

std::string_view name(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "error";
}

void deliver(const Log& log, LogLevel level, const std::string& message) {
  try {
    log(level, message);
  } catch (...) {
    // Who listens has no say in what the engine returns.
  }
}

}  // namespace longspan
