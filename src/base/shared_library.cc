#include "base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace longspan {
namespace {

Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message), "library"};
}

SharedLibrary library_of(void* handle) { return {handle, path_of_library(handle)}; }

}  // namespace

std::string path_of_library(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::canonical(map->l_name, failed);
  return failed ? map->l_name : path.string();
}

Result<void*> SharedLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle, name);
  if (found == nullptr) return unsupported(fmt::format("{} has no {}", path, name));
  return found;
}

Result<SharedLibrary> open_shared_library(const std::string& soname, const std::string& file) {
  void* const mapped = dlopen(soname.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (file.empty()) {
    void* const found = mapped != nullptr ? mapped : dlopen(soname.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (found != nullptr) return library_of(found);
    return unsupported(fmt::format(
        "no {} is mapped into the process, no path to one was given, and the loader says: {}",
        soname, dlerror()));
  }
  void* const wished = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (wished == nullptr) {
    return unsupported(
        fmt::format("{} could not be opened as \"{}\": {}", soname, file, dlerror()));
  }
  SharedLibrary library = library_of(wished);
  if (mapped == nullptr || path_of_library(mapped) == library.path) return library;
  return unsupported(fmt::format(
      "the process has mapped {} already, so {} cannot be used: leave the path out, or open that "
      "one first",
      path_of_library(mapped), file));
}

}  // namespace longspan
