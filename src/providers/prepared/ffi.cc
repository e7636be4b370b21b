#include "providers/prepared/ffi.h"

#include <fmt/format.h>
#include <tvm/ffi/c_api.h>

#include <mutex>
#include <optional>
#include <string_view>

#include "base/opened.h"
#include "base/shared_library.h"
#include "providers/prepared/errors.h"

namespace longspan::prepared {
namespace {

constexpr const char* kSoname = "libtvm_ffi.so";

template <class Function>
Status find(const SharedLibrary& library, const char* name, Function*& function) {
  LONGSPAN_TRY(void* const symbol, library.symbol(name));
  function = reinterpret_cast<Function*>(symbol);
  return {};
}

Status known_version(const SharedLibrary& library) {
  decltype(TVMFFIGetVersion)* get_version = nullptr;
  LONGSPAN_CHECK_OK(find(library, "TVMFFIGetVersion", get_version));
  TVMFFIVersion version{};
  get_version(&version);
  note_opened(fmt::format("TVM-FFI {}.{}.{} ({})", version.major, version.minor, version.patch,
                          library.path));
  if (version.major == TVM_FFI_VERSION_MAJOR && version.minor == TVM_FFI_VERSION_MINOR) return {};
  return refused(fmt::format(
      "{} is TVM-FFI {}.{}, known is {}.{}: install apache-tvm-ffi of that "
      "version",
      library.path, version.major, version.minor, TVM_FFI_VERSION_MAJOR, TVM_FFI_VERSION_MINOR));
}

Result<Ffi> open(const std::string& file) {
  Result<SharedLibrary> mapped = open_shared_library(kSoname, "");
  if (!mapped.ok()) mapped = open_shared_library(kSoname, file);
  LONGSPAN_TRY(const SharedLibrary library, std::move(mapped));
  LONGSPAN_CHECK_OK(known_version(library));
  Ffi ffi{.path = library.path};
  LONGSPAN_CHECK_OK(find(library, "TVMFFIEnvSetStream", ffi.set_stream));
  LONGSPAN_CHECK_OK(find(library, "TVMFFIErrorMoveFromRaised", ffi.take_error));
  LONGSPAN_CHECK_OK(find(library, "TVMFFIObjectDecRef", ffi.release));
  return ffi;
}

}  // namespace

Result<const Ffi*> open_ffi(const std::string& file) {
  static std::mutex mutex;
  static std::optional<Result<Ffi>> opened;
  const std::lock_guard lock(mutex);
  if (!opened) opened.emplace(open(file));
  if (!opened->ok()) return opened->error();
  return &opened->value();
}

std::string taken_error(const Ffi& ffi) {
  void* error = nullptr;
  ffi.take_error(&error);
  if (error == nullptr) return "no reason was given";
  // The cell follows the object's header.
  const auto* const cell = reinterpret_cast<const TVMFFIErrorCell*>(
      static_cast<const char*>(error) + sizeof(TVMFFIObject));
  const std::string text = fmt::format("{}: {}", std::string_view(cell->kind.data, cell->kind.size),
                                       std::string_view(cell->message.data, cell->message.size));
  ffi.release(error);
  return text;
}

StreamScope::StreamScope(const Ffi& ffi, int ordinal, void* stream) : ffi_(ffi), ordinal_(ordinal) {
  ok_ = ffi_.set_stream(kDLCUDA, ordinal_, stream, &before_) == 0;
}

StreamScope::~StreamScope() {
  if (ok_) ffi_.set_stream(kDLCUDA, ordinal_, before_, nullptr);
}

}  // namespace longspan::prepared
