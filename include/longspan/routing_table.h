// Measured times of providers, as data: what the automatic choice of a provider goes by.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/device.h"
#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

/// What a mask leaves visible, as far as speed goes. Chunks count as windows.
enum class MaskClass { kFull, kCausal, kWindow };

std::string_view name(MaskClass mask);  // "full", "causal", "window"

/// What times are of: one direction of one rank's work.
struct RoutingCase {
  std::string device;  // "cpu", or "cuda 9.0": a compute capability
  Direction direction = Direction::kForward;
  DType dtype = DType::kBF16;
  int64_t dim = 0;
  int64_t dim_v = 0;
  MaskClass mask = MaskClass::kFull;
  bool packed = false;  // sequences of different lengths
  bool deterministic = false;
  int64_t length = 0;  // query rows of one sequence, on average
  bool operator==(const RoutingCase&) const = default;
};

/// The case of a problem on a rank whose tiles have `rows_q` query rows.
RoutingCase routing_case(const Problem& problem, Direction direction, const Device& device,
                         int64_t rows_q);

struct MeasuredTime {
  std::string provider;
  double microseconds = 0;  // median
  bool operator==(const MeasuredTime&) const = default;
};

struct RoutingRow {
  RoutingCase measured;
  std::vector<MeasuredTime> times;  // fastest first
  bool operator==(const RoutingRow&) const = default;
};

/// Equal tables choose alike on every rank: ranks compare them at each cold call.
struct RoutingTable {
  /// Where it was measured: the device, versions, and the identity of each provider.
  std::map<std::string, std::string> fingerprint;
  std::vector<RoutingRow> rows;

  /// invalid_argument names the row and the field that is unknown, missing or out of range.
  static Result<RoutingTable> from_json(std::string_view json);
  /// from_json of a file; errors name it.
  static Result<RoutingTable> load(const std::string& path);
  /// One line a row. Equal tables have equal texts.
  std::string to_json() const;

  /// The row that stands for a case: of its device, direction, mask, packing and determinism; of
  /// its type, or where that has no row of the other 16-bit type; of the least dims that hold its
  /// dims; of these the one whose length is nearest as a ratio. Null: nothing like it was measured.
  const RoutingRow* find(const RoutingCase& wanted) const;
};

/// The one that comes with the library, which Options::routing_table replaces.
std::shared_ptr<const RoutingTable> measured_routing_table();

}  // namespace longspan
