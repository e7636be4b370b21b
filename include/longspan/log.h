// What an engine says about cold events.
#pragma once

#include <functional>
#include <string_view>

namespace longspan {

enum class LogLevel {
  kInfo,     // what was chosen, built or opened
  kWarning,  // something other than was preferred, or work that will be done again
  kError,    // a guard failed or a peer is lost: the call's Status says so too
};

std::string_view name(LogLevel level);  // "info", "warning", "error"

/// Gets one line, without its end, that is valid during the call. Called on the thread that uses
/// the engine, so by several threads at once where engines share it. What it throws is dropped. It
/// must not use the engine that calls it; another one it may.
using Log = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace longspan
