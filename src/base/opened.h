// Libraries of others that the process has opened, for messages.
#pragma once

#include <string>

namespace longspan {

/// Adds "NAME VERSION (PATH)" to opened_libraries() unless it is there. Thread-safe.
void note_opened(const std::string& description);

}  // namespace longspan
