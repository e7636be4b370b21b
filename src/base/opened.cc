#include "base/opened.h"

#include <algorithm>
#include <mutex>

#include "longspan/libraries.h"

namespace longspan {
namespace {

struct Opened {
  std::mutex mutex;
  std::vector<std::string> descriptions;
};

Opened& opened() {
  static Opened instance;
  return instance;
}

}  // namespace

void note_opened(const std::string& description) {
  Opened& o = opened();
  const std::lock_guard lock(o.mutex);
  if (std::find(o.descriptions.begin(), o.descriptions.end(), description) !=
      o.descriptions.end()) {
    return;
  }
  o.descriptions.push_back(description);
}

std::vector<std::string> opened_libraries() {
  Opened& o = opened();
  const std::lock_guard lock(o.mutex);
  return o.descriptions;
}

}  // namespace longspan
