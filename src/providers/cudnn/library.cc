#include "providers/cudnn/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/opened.h"
#include "base/shared_library.h"
#include "longspan/libraries.h"

namespace longspan::cudnn {
namespace {

constexpr const char* kName = "libcudnn.so.9";
constexpr int kLowest = 91900;

/// Parts that the main library opens by name when it needs them.
constexpr std::array<const char*, 5> kParts = {
    "libcudnn_graph.so.9", "libcudnn_heuristic.so.9", "libcudnn_ops.so.9",
    "libcudnn_engines_precompiled.so.9", "libcudnn_engines_runtime_compiled.so.9"};

Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message), "cudnn"};
}

std::string directory_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

void* open(const std::string& file) { return dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL); }

constexpr const char* kRemedy =
    "install nvidia-cudnn-cu13 9.19 or newer, and name its lib directory by set_cudnn_path() "
    "(longspan --cudnn) or in LD_LIBRARY_PATH before the start";

/// The file or directory that was named, which must be the copy that the process has already.
Result<void*> find_named(const std::string& path, void* mapped) {
  std::error_code failed;
  const bool directory = std::filesystem::is_directory(path, failed);
  const std::string file = directory ? path + "/" + kName : path;
  void* const named = open(file);
  if (named == nullptr) {
    return unsupported(fmt::format("cuDNN could not be opened as {}, the path that was set: {}; {}",
                                   file, dlerror(), kRemedy));
  }
  if (mapped == nullptr || path_of_library(mapped) == path_of_library(named)) return named;
  return unsupported(
      fmt::format("the process has mapped {} already, so {} cannot be used: leave the path out, or "
                  "open that one first",
                  path_of_library(mapped), file));
}

/// The one named, else the copy that the process has already, else the loader's.
Result<void*> find(const std::string& path) {
  void* const mapped = dlopen(kName, RTLD_LAZY | RTLD_NOLOAD);
  if (!path.empty()) return find_named(path, mapped);
  if (mapped != nullptr) return mapped;
  if (void* const found = open(kName)) return found;
  return unsupported(fmt::format(
      "no cuDNN: none is mapped into the process, no path was set, and the loader says \"{}\"; {}",
      dlerror(), kRemedy));
}

Result<Library> open_library(const std::string& path) {
  Library result;
  LONGSPAN_TRY(result.handle, find(path));
  result.path = path_of_library(result.handle);
  const auto get_version = reinterpret_cast<size_t (*)()>(dlsym(result.handle, "cudnnGetVersion"));
  if (get_version == nullptr) {
    return unsupported(fmt::format("{} has no cudnnGetVersion: it is no cuDNN", result.path));
  }
  result.version = static_cast<int>(get_version());
  if (const auto reason = refused_version(result.version)) {
    return unsupported(fmt::format("{}: {}", result.path, *reason));
  }
  LONGSPAN_CHECK_OK(one_installation(result));
  note_opened(fmt::format("cuDNN {} ({})", version_text(result.version), result.path));
  return result;
}

struct Process {
  std::mutex mutex;
  std::string path;  // empty: no wish
  std::optional<Result<Library>> opened;
};

/// Never destroyed: what the library holds must outlive every other owner.
Process& process() {
  static Process* const instance = new Process;
  return *instance;
}

}  // namespace

Result<const Library*> library() {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (!p.opened) p.opened.emplace(open_library(p.path));
  if (!p.opened->ok()) return p.opened->error();
  return &p.opened->value();
}

std::optional<std::string> refused_version(int version) {
  if (version == 91000 || version == 91001) {
    return fmt::format("cuDNN {} computes wrong attention: use {} or newer", version_text(version),
                       version_text(kLowest));
  }
  if (version == 91400) {
    return fmt::format("cuDNN {} computes wrong sliding windows: use {} or newer",
                       version_text(version), version_text(kLowest));
  }
  if (version >= kLowest) return std::nullopt;
  return fmt::format("cuDNN {} is older than {}", version_text(version), version_text(kLowest));
}

Status one_installation(const Library& library) {
  const std::string home = directory_of(library.path);
  for (const char* part : kParts) {
    void* const mapped = dlopen(part, RTLD_LAZY | RTLD_NOLOAD);
    if (mapped == nullptr) continue;
    const std::string path = path_of_library(mapped);
    dlclose(mapped);
    if (directory_of(path) == home) continue;
    return unsupported(fmt::format(
        "two installations of cuDNN are mapped: {} and {}; remove one from the loader's path",
        library.path, path));
  }
  return {};
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace longspan::cudnn

namespace longspan {

Status set_cudnn_path(const std::string& path) {
  cudnn::Process& p = cudnn::process();
  const std::lock_guard lock(p.mutex);
  if (p.opened) {
    return Error{ErrorCode::kInvalidArgument,
                 "cuDNN has been looked for already: set its path before the first problem",
                 "cudnn"};
  }
  p.path = path;
  return {};
}

}  // namespace longspan
