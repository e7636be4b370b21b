#include "providers/prepared/versions.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "providers/prepared/errors.h"
#include "providers/prepared/lists_text.h"
#include "providers/prepared/manifest.h"

namespace longspan::prepared {
namespace {

struct Pinned {
  std::string package, version;
};

/// Whether `engine` stands in a list with commas.
bool has(std::string_view list, std::string_view engine) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == engine) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

/// The lines of packages.txt that are of the engine.
std::vector<Pinned> pinned_of(std::string_view engine) {
  std::vector<Pinned> result;
  std::istringstream lines{kPackagesText};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string engines;
    Pinned pinned;
    words >> engines >> pinned.package >> pinned.version;
    if (has(engines, engine)) result.push_back(std::move(pinned));
  }
  return result;
}

}  // namespace

Status known_versions(const Manifest& m) {
  const std::vector<Pinned> all = pinned_of(name(m.engine));
  for (const Pinned& p : all) {
    const auto found = m.versions.find(p.package);
    const std::string version = found == m.versions.end() ? "no version" : found->second;
    if (version == p.version) continue;
    return refused(
        fmt::format("{} was made by {} of {}, known is {}: install {}=={} and prepare "
                    "the store anew",
                    m.path, version, p.package, p.version, p.package, p.version));
  }
  if (m.versions.size() == all.size()) return {};
  return refused(fmt::format("{} names {} packages, {} of engine {} are known", m.path,
                             m.versions.size(), all.size(), name(m.engine)));
}

}  // namespace longspan::prepared
