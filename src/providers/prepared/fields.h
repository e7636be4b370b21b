// Reads JSON objects strictly: every field by name and type, none left over.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "longspan/status.h"

namespace longspan::prepared {

/// The value of a file that a store consists of. unsupported names the file and what is wrong.
Result<nlohmann::json> read_json(const std::string& path);

/// The fields of one object. Errors are unsupported and name the object and the field.
class Fields {
 public:
  /// `where` names the object in messages; `object` must outlive this.
  static Result<Fields> of(const nlohmann::json& object, std::string where);

  bool has(const std::string& key) const { return object_->contains(key); }
  Result<std::string> text(const std::string& key);
  /// In [least, most].
  Result<int64_t> integer(const std::string& key, int64_t least, int64_t most);
  Result<bool> flag(const std::string& key);
  Result<Fields> fields(const std::string& key);
  Result<std::vector<Fields>> list(const std::string& key);
  /// All names of an object of texts, in order.
  std::vector<std::string> keys() const;
  /// An error when a field has not been asked for.
  Status none_left() const;
  const std::string& where() const { return where_; }

 private:
  Fields(const nlohmann::json& object, std::string where)
      : object_(&object), where_(std::move(where)) {}
  Result<const nlohmann::json*> find(const std::string& key);
  Error wrong(const std::string& key, const std::string& what) const;

  const nlohmann::json* object_;
  std::string where_;
  std::set<std::string> read_;
};

}  // namespace longspan::prepared
