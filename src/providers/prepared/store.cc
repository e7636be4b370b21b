#include "providers/prepared/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/opened.h"
#include "base/shared_library.h"
#include "longspan/libraries.h"
#include "providers/prepared/errors.h"
#include "providers/prepared/ffi.h"
#include "providers/prepared/fields.h"

namespace longspan::prepared {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreFile = "store.json";

/// Paths of manifests, in order of their names.
Result<std::vector<std::string>> manifest_paths(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".json" && path.filename() != kStoreFile) paths.push_back(path);
  }
  if (failed) return refused(fmt::format("{} cannot be read: {}", folder, failed.message()));
  std::ranges::sort(paths);
  return paths;
}

struct Process {
  std::mutex mutex;
  std::unique_ptr<const Store> store;  // null: none was named
  bool used = false;
};

/// Never destroyed: what a store has opened must outlive every other owner.
Process& process() {
  static Process* const instance = new Process;
  return *instance;
}

}  // namespace

Status Store::read_libraries() {
  const std::string path = (fs::path(folder_) / kStoreFile).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return invalid(fmt::format("there is no {}: {} is no store, run longspan prepare --out {}",
                               path, folder_, folder_));
  }
  LONGSPAN_TRY(const nlohmann::json root, read_json(path));
  LONGSPAN_TRY(Fields fields, Fields::of(root, path));
  LONGSPAN_CHECK_OK(
      fields.integer("format", kFormat, kFormat).ok()
          ? Status()
          : refused(fmt::format("{} is not of format {}: prepare the store anew", path, kFormat)));
  const auto resolved = [&](const std::string& text) {
    return (fs::path(folder_) / text).lexically_normal().string();
  };
  LONGSPAN_TRY(const std::string tvm_ffi, fields.text("tvm_ffi"));
  LONGSPAN_TRY(const std::string runtime, fields.text("runtime"));
  tvm_ffi_ = resolved(tvm_ffi);
  if (!runtime.empty()) runtimes_.push_back(resolved(runtime));
  return fields.none_left();
}

Result<std::unique_ptr<const Store>> Store::read(const std::string& folder) {
  std::unique_ptr<Store> store(new Store);
  store->folder_ = folder;
  LONGSPAN_CHECK_OK(store->read_libraries());
  LONGSPAN_TRY(const std::vector<std::string> paths, manifest_paths(folder));
  for (const std::string& path : paths) {
    LONGSPAN_TRY(Manifest manifest, read_manifest(path));
    store->manifests_.push_back(std::move(manifest));
  }
  return std::unique_ptr<const Store>(std::move(store));
}

Result<std::shared_ptr<const Kernel>> Store::open(const Manifest& manifest) const {
  LONGSPAN_TRY(const Ffi* const ffi, open_ffi(tvm_ffi_));
  // Objects name the runtime by its soname: the copy that is mapped already serves them.
  for (const std::string& path : runtimes_) {
    const std::string soname = fs::path(path).filename().string();
    Result<SharedLibrary> runtime = open_shared_library(soname, path);
    if (!runtime.ok()) return runtime.error();
    note_opened(fmt::format("{} ({})", soname, runtime->path));
  }
  return Kernel::open(manifest, *ffi);
}

Result<std::shared_ptr<const Kernel>> Store::kernel(const Manifest& manifest) const {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(manifest.path);
  if (found != opened_.end()) return found->second;
  return opened_.emplace(manifest.path, open(manifest)).first->second;
}

const Store* store() {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  p.used = p.store != nullptr;
  return p.store.get();
}

}  // namespace longspan::prepared

namespace longspan {

Status set_prepared_store(const std::string& folder) {
  prepared::Process& p = prepared::process();
  const std::lock_guard lock(p.mutex);
  if (p.used && folder == p.store->folder()) return {};
  if (p.used) {
    return prepared::invalid(fmt::format(
        "the store {} is in use: name another before the first problem", p.store->folder()));
  }
  LONGSPAN_TRY(p.store, prepared::Store::read(folder));
  return {};
}

}  // namespace longspan
