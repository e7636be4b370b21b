// What must be computed: shapes, lengths, mask and layout of one attention call.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/mask.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

enum class Direction { kForward, kBackward };
enum class MaskKind { kNone, kCausal };
enum class Align { kTopLeft, kBottomRight };
enum class Layout { kBSHD, kSBHD, kTHD };

std::string_view name(Direction direction);  // "forward", "backward"
std::string_view name(MaskKind kind);
std::string_view name(Align align);
std::string_view name(Layout layout);

/// One sequence. Offsets and extents are in rows of the global tensors; tokens beyond the lengths
/// up to the extents are padding: never read, written as zeros.
struct Sequence {
  int64_t q_length = 0;
  int64_t k_length = 0;
  int64_t q_extent = 0;
  int64_t k_extent = 0;
  int64_t q_offset = 0;
  int64_t k_offset = 0;
  bool operator==(const Sequence&) const = default;
};

/// Host values of the lengths: tiles and messages fit them exactly.
struct Lengths {
  std::vector<Sequence> sequences;
  int64_t tokens_q = 0;  // rows of q, o and dq; more than the extents = unused rows at the end
  int64_t tokens_k = 0;  // rows of k, v, dk and dv
  bool operator==(const Lengths&) const = default;
};

/// Upper bounds that size buffers and name plans. Lengths never enter a plan key, capacities do.
struct Capacity {
  int64_t tokens_q = 0;
  int64_t tokens_k = 0;
  int64_t sequences = 0;
  bool operator==(const Capacity&) const = default;
};

/// Most rows that one tensor may have. Keeps every area below 2^62.
inline constexpr int64_t kMaxTokens = int64_t{1} << 31;
inline constexpr int64_t kMaxDim = 576;
/// Most elements of one tensor. Keeps every size and sum of sizes in bytes inside 63 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 50;

struct Problem {
  DType dtype = DType::kF32;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;  // divides heads_q
  int64_t dim_qk = 0;
  int64_t dim_v = 0;
  MaskKind mask = MaskKind::kNone;
  Align align = Align::kTopLeft;
  Layout layout = Layout::kTHD;
  double scale = 0;  // factor on q.k: a run-time value, in no plan key
  Lengths lengths;
  Capacity capacity;
  /// Keys of the problem text that differ from their default and that no part honours yet, as
  /// written. Every provider declines a problem that has one.
  std::map<std::string, std::string> not_offered;

  bool operator==(const Problem&) const = default;

  int64_t group() const { return heads_q / heads_kv; }
  /// The band of a sequence, alignment resolved.
  Band band(const Sequence& sequence) const;
  /// Pairs of visible tokens over all sequences, of one head.
  int64_t visible_pairs() const;
  /// Counted work: forward 2 (dim + dim_v), backward 2 (3 dim + 2 dim_v) per visible pair and query
  /// head.
  double flops(Direction direction) const;
  /// The text form. parse(text()) gives an equal problem.
  std::string text() const;
};

/// The keys of a problem text and their values, not yet checked against each other.
struct ProblemFields {
  std::map<std::string, std::string> values;

  /// Keys of `over` replace ours.
  ProblemFields merged(const ProblemFields& over) const;
};

/// One key of the problem text.
struct KeyInfo {
  std::string_view name;
  std::string_view allowed;   // values, as error messages give them
  std::string_view standard;  // the default, or "required"
  std::string_view meaning;
  bool offered;  // false: any value but the default is declined
};

/// All keys in canonical order.
std::span<const KeyInfo> problem_keys();

/// Splits "key=value key=value" text. Unknown, repeated, empty or out-of-range keys are
/// invalid_argument naming key, value and what is allowed.
Result<ProblemFields> parse_fields(std::string_view text);

/// Checks every key, and the keys against each other; fills in defaults and resolves offsets.
Result<Problem> make_problem(const ProblemFields& fields);

/// parse_fields, then make_problem.
Result<Problem> parse_problem(std::string_view text);

/// Checks a Problem that code filled in by hand (all fields; capacity is set from the lengths when
/// zero).
Result<Problem> validated(Problem problem);

/// Sequence lengths from cumulative ones, int32 or int64 widened: needs cu[0] == 0, monotone.
Result<std::vector<int64_t>> lengths_from_cumulative(const std::vector<int64_t>& cu,
                                                     std::string_view name);

}  // namespace longspan
