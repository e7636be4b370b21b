// The folder of prepared objects that the process uses.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "longspan/status.h"
#include "providers/prepared/kernel.h"
#include "providers/prepared/manifest.h"

namespace longspan::prepared {

/// A folder with "store.json", which says where the libraries of others are, and a manifest
/// "NAME.json" beside each shared object. Thread-safe.
class Store {
 public:
  /// Reads all manifests. invalid_argument: the folder is no store; unsupported names the file that
  /// is wrong.
  static Result<std::unique_ptr<const Store>> read(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::span<const Manifest> manifests() const { return manifests_; }
  /// Opens and checks the object once; later calls give the same answer.
  Result<std::shared_ptr<const Kernel>> kernel(const Manifest& manifest) const;

 private:
  Store() = default;
  Status read_libraries();
  Result<std::shared_ptr<const Kernel>> open(const Manifest& manifest) const;

  std::string folder_;
  std::string tvm_ffi_;                // path
  std::vector<std::string> runtimes_;  // paths
  std::vector<Manifest> manifests_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Result<std::shared_ptr<const Kernel>>> opened_;  // by path
};

/// The one that set_prepared_store named. Null: none was named.
const Store* store();

}  // namespace longspan::prepared
