#include "providers/prepared/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "providers/prepared/errors.h"
#include "providers/prepared/fields.h"
#include "providers/prepared/sha256.h"
#include "providers/prepared/versions.h"

namespace longspan::prepared {
namespace {

constexpr std::array<std::string_view, 2> kEngines = {"fa4", "frost"};
constexpr std::array<std::string_view, kShapes> kShapeNames = {"full", "causal", "window"};
constexpr int64_t kMostRows = int64_t{1} << 31;

/// The place of a text among those allowed.
template <size_t N>
Result<size_t> choice(Fields& fields, const std::string& key,
                      const std::array<std::string_view, N>& allowed) {
  LONGSPAN_TRY(const std::string text, fields.text(key));
  const auto found = std::ranges::find(allowed, text);
  if (found != allowed.end()) return static_cast<size_t>(found - allowed.begin());
  return refused(
      fmt::format("{}: {} is {}, none of {}", fields.where(), key, text, fmt::join(allowed, ", ")));
}

Result<bool> is_second(Fields& fields, const std::string& key,
                       const std::array<std::string_view, 2>& allowed) {
  LONGSPAN_TRY(const size_t place, choice(fields, key, allowed));
  return place == 1;
}

Result<Name> buffer_name(Fields& fields) {
  LONGSPAN_TRY(const std::string text, fields.text("name"));
  const std::optional<Name> name = parse_name(text);
  if (name && *name >= Name::kDeltaRows) return *name;
  return refused(fmt::format("{}: {} is no known buffer", fields.where(), text));
}

Status read_fixed(Fields& fields, Serves& serves) {
  LONGSPAN_TRY(serves.heads_q, fields.integer("heads_q", 1, kMostRows));
  LONGSPAN_TRY(serves.heads_kv, fields.integer("heads_kv", 1, kMostRows));
  LONGSPAN_TRY(serves.tokens_q, fields.integer("tokens_q", 1, kMostRows));
  LONGSPAN_TRY(serves.tokens_k, fields.integer("tokens_k", 1, kMostRows));
  LONGSPAN_TRY(serves.lengths, fields.flag("lengths"));
  if (serves.heads_q == serves.heads_kv * serves.group) return {};
  return refused(fmt::format("{}: {} query heads are not {} times {} key heads", fields.where(),
                             serves.heads_q, serves.group, serves.heads_kv));
}

Result<Serves> read_serves(Fields fields, Engine engine) {
  Serves serves;
  LONGSPAN_TRY(const bool backward, is_second(fields, "direction", {"forward", "backward"}));
  serves.direction = backward ? Direction::kBackward : Direction::kForward;
  LONGSPAN_TRY(const bool bf16, is_second(fields, "dtype", {"f16", "bf16"}));
  serves.dtype = bf16 ? DType::kBF16 : DType::kF16;
  LONGSPAN_TRY(serves.dim, fields.integer("dim", 8, kMaxDim));
  LONGSPAN_TRY(serves.dim_v, fields.integer("dim_v", 8, kMaxDim));
  LONGSPAN_TRY(serves.group, fields.integer("group", 1, kMostRows));
  LONGSPAN_TRY(const size_t shape, choice(fields, "mask", kShapeNames));
  serves.shape = static_cast<Shape>(shape);
  LONGSPAN_TRY(serves.packed, is_second(fields, "layout", {"dense", "packed"}));
  LONGSPAN_TRY(serves.deterministic, fields.flag("deterministic"));
  if (engine == Engine::kFrost) LONGSPAN_CHECK_OK(read_fixed(fields, serves));
  LONGSPAN_CHECK_OK(fields.none_left());
  return serves;
}

Result<Buffer> read_buffer(Fields fields) {
  Buffer buffer;
  LONGSPAN_TRY(buffer.name, buffer_name(fields));
  LONGSPAN_TRY(const bool ints, is_second(fields, "dtype", {"float32", "int32"}));
  buffer.element = ints ? Element::kI32 : Element::kF32;
  LONGSPAN_TRY(buffer.keys, is_second(fields, "of", {"q", "k"}));
  LONGSPAN_TRY(buffer.turns, is_second(fields, "per", {"row", "tile"}));
  LONGSPAN_TRY(buffer.width, fields.integer("width", 1, 2 * kMaxDim));
  LONGSPAN_TRY(buffer.cleared, is_second(fields, "cleared_by", {"entry", "caller"}));
  LONGSPAN_CHECK_OK(fields.none_left());
  return buffer;
}

Result<EntrySpec> read_entry(Fields fields) {
  EntrySpec entry;
  LONGSPAN_TRY(entry.role, fields.text("role"));
  LONGSPAN_TRY(entry.symbol, fields.text("symbol"));
  LONGSPAN_TRY(entry.list, fields.text("list"));
  LONGSPAN_TRY(entry.signature, fields.text("signature"));
  LONGSPAN_CHECK_OK(fields.none_left());
  return entry;
}

Result<StepSpec> read_step(Fields fields) {
  StepSpec step;
  LONGSPAN_TRY(step.role, fields.text("role"));
  LONGSPAN_TRY(Fields given, fields.fields("given"));
  for (const std::string& slot : given.keys()) {
    LONGSPAN_TRY(const std::string text, given.text(slot));
    const Result<Given> parsed = parse_given(text);
    if (!parsed.ok()) {
      return refused(fmt::format("{}: {}", given.where(), parsed.error().message));
    }
    step.given[slot] = *parsed;
  }
  LONGSPAN_CHECK_OK(fields.none_left());
  return step;
}

/// Reads every object of a list with `read`.
template <class T>
Result<std::vector<T>> read_all(Fields& fields, const std::string& key, Result<T> (*read)(Fields)) {
  LONGSPAN_TRY(std::vector<Fields> items, fields.list(key));
  std::vector<T> result;
  for (Fields& item : items) {
    LONGSPAN_TRY(T value, read(std::move(item)));
    result.push_back(std::move(value));
  }
  return result;
}

Status read_library(Fields fields, Manifest& m) {
  LONGSPAN_TRY(const std::string file, fields.text("file"));
  LONGSPAN_TRY(m.sha256, fields.text("sha256"));
  LONGSPAN_CHECK_OK(fields.none_left());
  if (file.find('/') != file.npos) {
    return refused(fmt::format("{}: file {} lies outside the store", fields.where(), file));
  }
  m.library = (std::filesystem::path(m.path).parent_path() / file).string();
  return {};
}

Status read_versions(Fields fields, Manifest& m) {
  for (const std::string& package : fields.keys()) {
    LONGSPAN_TRY(m.versions[package], fields.text(package));
  }
  return known_versions(m);
}

Status read_parts(Fields& fields, Manifest& m) {
  LONGSPAN_TRY(m.name, fields.text("name"));
  LONGSPAN_TRY(const size_t engine, choice(fields, "engine", kEngines));
  m.engine = static_cast<Engine>(engine);
  LONGSPAN_TRY(m.architecture, fields.text("architecture"));
  LONGSPAN_TRY(Fields versions, fields.fields("versions"));
  LONGSPAN_CHECK_OK(read_versions(std::move(versions), m));
  LONGSPAN_TRY(Fields library, fields.fields("library"));
  LONGSPAN_CHECK_OK(read_library(std::move(library), m));
  LONGSPAN_TRY(Fields serves, fields.fields("serves"));
  LONGSPAN_TRY(m.serves, read_serves(std::move(serves), m.engine));
  LONGSPAN_TRY(m.tile_q, fields.integer("tile_q", 1, 1024));
  LONGSPAN_TRY(m.tile_k, fields.integer("tile_k", 1, 1024));
  LONGSPAN_TRY(m.buffers, read_all(fields, "buffers", read_buffer));
  LONGSPAN_TRY(m.entries, read_all(fields, "entries", read_entry));
  LONGSPAN_TRY(m.steps, read_all(fields, "steps", read_step));
  return fields.none_left();
}

}  // namespace

std::string_view name(Engine engine) { return kEngines[static_cast<size_t>(engine)]; }
std::string_view name(Shape shape) { return kShapeNames[static_cast<size_t>(shape)]; }

std::string checksum_of(nlohmann::json manifest) {
  manifest.erase("checksum");
  constexpr int kOneLine = -1;
  constexpr bool kAscii = true;
  return sha256_of_text(
      manifest.dump(kOneLine, ' ', kAscii, nlohmann::json::error_handler_t::replace));
}

Result<Manifest> read_manifest(const std::string& path) {
  LONGSPAN_TRY(const nlohmann::json root, read_json(path));
  LONGSPAN_TRY(Fields fields, Fields::of(root, path));
  LONGSPAN_TRY(const int64_t format, fields.integer("format", 0, kMostRows));
  if (format != kFormat) {
    return refused(fmt::format("{} has format {}, read is format {}: prepare the store anew", path,
                               format, kFormat));
  }
  LONGSPAN_TRY(const std::string written, fields.text("checksum"));
  if (const std::string sum = checksum_of(root); sum != written) {
    return refused(
        fmt::format("{} is not as it was written: its fields have checksum {}, it says "
                    "{}: prepare the store anew",
                    path, sum, written));
  }
  Manifest manifest{.path = path};
  LONGSPAN_CHECK_OK(read_parts(fields, manifest));
  return manifest;
}

}  // namespace longspan::prepared
