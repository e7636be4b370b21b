#include "providers/prepared/versions.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "providers/prepared/errors.h"
#include "providers/prepared/manifest.h"

namespace longspan::prepared {
namespace {

struct Pinned {
  const char* package;
  const char* version;
};

constexpr Pinned kFa4[] = {{"flash-attn-4", "4.0.0b36"},
                           {"nvidia-cutlass-dsl", "4.8.1"},
                           {"apache-tvm-ffi", "0.1.15.post2"}};
constexpr Pinned kFrost[] = {{"nvidia-cudnn-frontend", "1.32.0"},
                             {"nvidia-cutlass-dsl", "4.8.1"},
                             {"apache-tvm-ffi", "0.1.15.post2"}};

}  // namespace

Status known_versions(const Manifest& m) {
  const std::span<const Pinned> pinned =
      m.engine == Engine::kFa4 ? std::span(kFa4) : std::span(kFrost);
  for (const Pinned& p : pinned) {
    const auto found = m.versions.find(p.package);
    const std::string version = found == m.versions.end() ? "no version" : found->second;
    if (version == p.version) continue;
    return refused(
        fmt::format("{} was made by {} of {}, known is {}: install {}=={} and prepare "
                    "the store anew",
                    m.path, version, p.package, p.version, p.package, p.version));
  }
  if (m.versions.size() == pinned.size()) return {};
  return refused(fmt::format("{} names {} packages, {} of engine {} are known", m.path,
                             m.versions.size(), pinned.size(), name(m.engine)));
}

}  // namespace longspan::prepared
