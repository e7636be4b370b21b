// Stores whose objects are the test double.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "double.h"
#include "longspan/status.h"
#include "providers/prepared/kernel.h"
#include "providers/prepared/store.h"

namespace longspan::prepared::testing {

using nlohmann::json;

/// A folder that is removed at the end.
class DoubleStore {
 public:
  DoubleStore();
  ~DoubleStore();
  DoubleStore(const DoubleStore&) = delete;
  DoubleStore& operator=(const DoubleStore&) = delete;

  const std::string& folder() const { return folder_; }
  /// Writes the file, NAME.json where none is named, with the checksum of what it then holds.
  void add(json manifest, const std::string& file = "") const;
  void write(const std::string& file, const std::string& text) const;
  Result<std::unique_ptr<const Store>> read() const { return Store::read(folder_); }
  /// Opens the only manifest, or says what is wrong with it.
  Result<std::shared_ptr<const Kernel>> open() const;

 private:
  std::string folder_;
};

/// A manifest of the double's entry `symbol`; bf16, dim 16, two query heads a key head.
json forward_manifest(const std::string& name, const std::string& symbol, const char* mask,
                      const char* signature);
/// The chain of a backward whose query heads share key heads. The deterministic one notes what its
/// main kernel is given.
json backward_manifest(const std::string& name, const char* mask, bool deterministic = false);
/// FROST with 4 query heads of 2 key heads, dim 512, up to 256 rows.
json frost_manifest(const std::string& symbol, const std::string& list, const char* signature);

/// What the double was last called with.
const Record& record();

}  // namespace longspan::prepared::testing
