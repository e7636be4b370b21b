#include "base/json.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

namespace longspan {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 8;

Error bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), "json"}; }

/// Told of everything that is parsed: notes the first thing that is wrong.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    const bool begins = event == Event::object_start || event == Event::array_start;
    if (begins && depth >= kMostDepth)
      return note(fmt::format("nested deeper than {}", kMostDepth));
    if (event == Event::object_start) fields(depth + 1).clear();
    if (event == Event::key && depth <= kMostDepth) {
      const auto& field = value.get_ref<const std::string&>();
      if (!fields(depth).insert(field).second) {
        return note(fmt::format("with two fields \"{}\" in one object", field));
      }
    }
    return true;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  bool note(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
    return false;
  }
  /// Of the open object whose fields have this depth.
  std::set<std::string>& fields(int depth) { return fields_[static_cast<size_t>(depth)]; }

  std::array<std::set<std::string>, kMostDepth + 1> fields_;
  std::string wrong_;
};

}  // namespace

Result<json> parse_json(std::string_view text) {
  Watch watch;
  json value = json::parse(text, std::ref(watch), false);
  if (!watch.wrong().empty()) return bad(fmt::format("JSON {}", watch.wrong()));
  if (value.is_discarded()) return bad(fmt::format("the {} bytes are not JSON", text.size()));
  return value;
}

Result<std::string> read_text(const std::string& path, size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most_bytes + 1, '\0');  // one more shows that a file is too long
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return bad(fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= most_bytes) return text;
  return bad(fmt::format("'{}' has more than {} bytes", path, most_bytes));
}

}  // namespace longspan
