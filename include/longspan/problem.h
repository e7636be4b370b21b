// What must be computed: shapes, lengths, mask and layout of one attention call.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/dropout.h"
#include "longspan/mask.h"
#include "longspan/modification.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

enum class Direction { kForward, kBackward };
enum class MaskKind { kNone, kCausal };
enum class Align { kTopLeft, kBottomRight };
enum class Layout { kBSHD, kSBHD, kTHD };
enum class Alibi { kNone, kDefault };
/// Shape of the additive bias: [batch or 1, heads or 1, sq, skv], and [1, 1, 1, skv].
enum class Bias { kNone, k11, kB1, k1H, kBH, k111S };
enum class Sink { kNone, kOffByOne, kLearnable };
enum class Fp8 { kNone, kDelayed, kCurrent, kMxfp8 };

std::string_view name(Direction direction);  // "forward", "backward"
std::string_view name(MaskKind kind);
std::string_view name(Align align);
std::string_view name(Layout layout);
std::string_view name(Alibi alibi);  // "none", "default"
std::string_view name(Bias bias);    // "none", "1,1", "b,1", "1,h", "b,h", "1,1,1,s"
std::string_view name(Sink sink);    // "none", "off_by_one", "learnable"
std::string_view name(Fp8 recipe);   // "none", "delayed", "current", "mxfp8"

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

/// How many tokens of each sequence are there in one call, int32 in memory of the call's device.
/// Tokens at and beyond them are padding. Values outside [0, length of the problem] are cut to it.
struct ActualLengths {
  std::span<const int32_t> q, k;  // one per sequence; empty: those of the problem
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

/// A rectangle of one sequence and the band of its visible pairs, in the sequence's own positions.
struct MaskTile {
  Interval q;
  Interval k;
  Band band;
};

struct Problem {
  DType dtype = DType::kF32;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;  // divides heads_q
  int64_t dim_qk = 0;
  int64_t dim_v = 0;
  MaskKind mask = MaskKind::kNone;
  Align align = Align::kTopLeft;
  Layout layout = Layout::kTHD;
  double scale = 0;             // factor on q.k: a run-time value, in no plan key
  int64_t window_left = -1;     // query q sees keys from q + shift - left
  int64_t window_right = -1;    // to q + shift + right; -1: unbounded
  std::vector<int64_t> prefix;  // per sequence: first keys that every query sees; empty: none
  int64_t chunk = 0;            // queries see only keys of their own chunk of this size; 0: off
  double softcap = 0;           // run-time value, but for being 0 (off)
  Alibi alibi = Alibi::kNone;
  Bias bias = Bias::kNone;
  Sink sink = Sink::kNone;
  double dropout = 0;                    // run-time value, but for being 0 (off)
  std::optional<uint64_t> dropout_seed;  // run-time value; absent: 0
  int64_t page = 0;                      // tokens a page of keys and values; 0: not paged
  Fp8 fp8 = Fp8::kNone;
  bool deterministic = false;  // equal bits from run to run
  bool invariant = false;      // equal bits for any number of ranks
  bool max_logit = false;      // return the largest logit per head
  /// The lengths are capacities, and each call brings its ActualLengths.
  bool device_lengths = false;
  ModificationRef modification;  // not part of the text form
  Lengths lengths;
  Capacity capacity;
  bool operator==(const Problem&) const = default;

  int64_t group() const { return heads_q / heads_kv; }
  /// The key that query 0 is aligned with.
  int64_t shift(const Sequence& sequence) const;
  /// The band of mask and window, alignment resolved; prefix and chunk come on top.
  Band band(const Sequence& sequence) const;
  /// The visible pairs of a sequence are those of disjoint tiles, numbered from 0 (the prefix).
  /// Those that queries of `q` may lie in; mask_tile() of a number gives the tile, which may be
  /// without tokens.
  Range mask_tiles(int64_t sequence, Interval q) const;
  MaskTile mask_tile(int64_t sequence, int64_t number) const;
  /// Pairs of visible tokens of one head: over all sequences, or of the first queries of one.
  int64_t visible_pairs() const;
  int64_t visible_pairs(int64_t sequence, int64_t queries) const;
  /// Extents of the bias tensor, largest extents of the sequences for sq and skv; all 0 without.
  std::array<int64_t, 4> bias_shape() const;
  Dropout dropout_values() const { return {dropout, dropout_seed.value_or(0), 0}; }
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

/// What a problem with device_lengths is in a call of these lengths, which lie in host memory: the
/// same rows, but lengths known ahead. invalid_argument when one is no length within its capacity.
Result<Problem> with_lengths(Problem problem, const ActualLengths& lengths);

/// The slopes of ALiBi (Press et al. 2022, section 3) per query head, also for head counts that are
/// no power of two: those of the next lower power first, then every other one of its double.
std::vector<double> default_alibi_slopes(int64_t heads);

/// Sequence lengths of a packed row of tokens from the document id of each token: one sequence per
/// stretch of equal ids. invalid_argument when an id comes back after another one.
Result<std::vector<int64_t>> lengths_from_ids(std::span<const int64_t> ids);

/// Sequence lengths from cumulative ones, int32 or int64 widened: needs cu[0] == 0, monotone.
Result<std::vector<int64_t>> lengths_from_cumulative(const std::vector<int64_t>& cu,
                                                     std::string_view name);

}  // namespace longspan
