// What a prepared object says of itself.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"
#include "providers/prepared/lists.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

/// Of manifests that this reader understands.
inline constexpr int64_t kFormat = 3;

enum class Engine { kFa4, kFrost };
std::string_view name(Engine engine);  // "fa4", "frost"

/// Which keys a build lets queries see: all; those up to the diagonal, which ends in the bottom
/// right corner; those between two widths beside it, given at run time.
enum class Shape { kFull, kCausal, kWindow };
inline constexpr size_t kShapes = 3;
std::string_view name(Shape shape);  // "full", "causal", "window"

/// What a build computes.
struct Serves {
  Direction direction = Direction::kForward;
  DType dtype = DType::kBF16;
  int64_t dim = 0, dim_v = 0;
  int64_t group = 1;  // query heads of a key head
  Shape shape = Shape::kFull;
  bool packed = false;         // sequences lie one behind the other, told apart by row counts
  bool deterministic = false;  // equal bits from run to run
  /// Engine::kFrost: what else is fixed. Lengths: rows are those that the device says, up to these.
  int64_t heads_q = 0, heads_kv = 0;
  int64_t tokens_q = 0, tokens_k = 0;
  bool lengths = false;

  bool operator==(const Serves&) const = default;
};

/// Scratch memory of an execution. One batch entry of r rows has heads x padded(r) x width
/// elements, padded to the tile; with `turns`, heads x tiles x width.
struct Buffer {
  Name name = Name::kDeltaRows;
  Element element = Element::kF32;
  bool keys = false;  // rows and heads are those of keys
  bool turns = false;
  int64_t width = 1;
  bool cleared = false;  // by us, before the first step
};

struct EntrySpec {
  std::string role;
  std::string symbol;
  std::string list;       // of lists.txt
  std::string signature;  // verbatim
};

/// One call of an entry, with what its slots of Given::kStep are given.
struct StepSpec {
  std::string role;
  std::map<std::string, Given> given;
};

struct Manifest {
  std::string name;
  std::string path;  // of the manifest's file
  Engine engine = Engine::kFa4;
  std::map<std::string, std::string> versions;  // package to version
  std::string architecture;                     // "sm_90a"
  std::string library;                          // path of the shared object
  std::string sha256;
  Serves serves;
  int64_t tile_q = 1, tile_k = 1;  // what buffers are padded to
  std::vector<Buffer> buffers;
  std::vector<EntrySpec> entries;
  std::vector<StepSpec> steps;
};

/// Of all fields but "checksum", as text with names in order and without spaces.
std::string checksum_of(nlohmann::json manifest);

/// Reads and checks `path`. unsupported names the file and the field: another format or checksum, a
/// field that is missing, unknown or of another type, an unknown engine, version, list or buffer.
Result<Manifest> read_manifest(const std::string& path);

}  // namespace longspan::prepared
