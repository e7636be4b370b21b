// One cuDNN graph with its plan. The only place that knows cudnn-frontend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "longspan/provider.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// In elements.
struct Strides {
  int64_t batch = 0, row = 0, head = 0;
  bool operator==(const Strides&) const = default;
};

/// Tensors of a graph. Those that a graph does not have stay null.
enum class Slot : int {
  kQ,
  kK,
  kV,
  kO,
  kStats,
  kDout,
  kDq,
  kDk,
  kDv,
  kScale,  // a float in host memory
  kLengthsQ,
  kLengthsK,  // int32 per batch entry
  kBias,      // BiasShape
  kDbias,     // of all query heads and rows, in the bias's type
  kOffsets,   // of the first nine, in order: int64, batch + 1, in elements from the base address
  kCount = kOffsets + 9
};

/// Those with rows and heads, from kQ to kDv.
inline constexpr int kTensors = 9;

inline constexpr int index_of(Slot slot) { return static_cast<int>(slot); }
inline constexpr Slot offsets_of(Slot tensor) {
  return static_cast<Slot>(index_of(Slot::kOffsets) + index_of(tensor));
}

/// Strides of the tensors of a graph; those that it does not have stay 0.
struct AllStrides {
  std::array<Strides, kTensors> tensors{};
  Strides& operator[](Slot slot) { return tensors[static_cast<size_t>(slot)]; }
  const Strides& operator[](Slot slot) const { return tensors[static_cast<size_t>(slot)]; }
  bool operator==(const AllStrides&) const = default;
};

/// Of a packed bias, [1, heads, rows, bias_width(skv)]; 1 serves all. 0: there is none.
struct BiasShape {
  int64_t heads = 0, rows = 0;
  bool operator==(const BiasShape&) const = default;
};

/// Elements from a row of a packed bias to the next: rows begin at multiples of 16 bytes.
inline constexpr int64_t bias_width(int64_t keys) { return (keys + 7) / 8 * 8; }

/// All that a graph is built from.
struct GraphKey {
  Direction direction = Direction::kForward;
  DType dtype = DType::kBF16;
  int64_t heads_q = 0, heads_kv = 0;
  int64_t dim_qk = 0, dim_v = 0;
  bool deterministic = false;
  bool ragged = false, padded = false;
  Mask mask;
  int64_t batch = 0, sq = 0, skv = 0;
  int64_t total_q = 0, total_k = 0;  // ragged backward: bounds of the rows of all entries
  BiasShape bias;
  AllStrides strides;
  int ordinal = 0;
  bool operator==(const GraphKey&) const = default;
};

struct GraphKeyHash {
  size_t operator()(const GraphKey& key) const;
};

/// For messages: what a reader needs to know which graph is meant.
std::string text(const GraphKey& key);

inline constexpr int kSlots = index_of(Slot::kCount);

struct Arguments {
  std::array<void*, kSlots> pointers{};
  void*& operator[](Slot slot) { return pointers[static_cast<size_t>(slot)]; }
  void* operator[](Slot slot) const { return pointers[static_cast<size_t>(slot)]; }
};

/// Immutable; executed from several threads at once.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual size_t workspace_bytes() const = 0;
  virtual const std::string& plan_name() const = 0;
  /// Enqueues. The device of the graph must be current.
  virtual Status execute(const Arguments& arguments, void* workspace, Stream stream) const = 0;
};

/// Compiles where the process has no kernel of this kind yet (about a second), else about 50 ms.
/// The device of the key must be current. The error carries cuDNN's text and the key's.
Result<std::shared_ptr<const Graph>> build_graph(const GraphKey& key);

/// What cuDNN says to a graph without compiling it.
struct Support {
  bool accepted = false;
  std::string message;  // cuDNN's text when it does not accept
  std::string plan_name;
};

/// Needs cuDNN and a libcuda, but no device: `properties` describes one (device_properties()).
/// Acceptance shows nothing about results. `most_engine_bytes`: of the workspace without the part
/// that cudnn-frontend adds.
Result<Support> check_support(const GraphKey& key, std::string_view properties,
                              int64_t most_engine_bytes = std::numeric_limits<int64_t>::max());

/// The current device as cuDNN describes it, in JSON.
Result<std::string> device_properties(int ordinal);

}  // namespace longspan::cudnn
