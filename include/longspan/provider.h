// How one rank's tiles are computed. A provider never asks for its rank and knows no strategy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longspan/decline.h"
#include "longspan/device.h"
#include "longspan/loan.h"
#include "longspan/mask.h"
#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

/// Caller-owned scratch memory. Contents are arbitrary on entry. `data` is aligned to 64 bytes.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

inline constexpr size_t kWorkspaceAlignment = 64;

/// What a problem asks of its scores beyond the scale: whether, not how much.
struct Features {
  bool window = false;
  bool softcap = false;
  bool alibi = false;
  Bias bias = Bias::kNone;
  bool dropout = false;
  bool max_logit = false;       // forward raises it
  bool paged = false;           // keys and values may be paged views; forward only
  bool device_lengths = false;  // each call brings lengths that its tiles end at
  bool deterministic = false;
  /// Results are written, in the problem's type, instead of merged or added: each query row, in
  /// backward each key row too, lies in one tile at most.
  bool whole = false;
  Fp8 fp8 = Fp8::kNone;
  std::optional<std::string> modification;  // its key; plans of an empty one are never cached

  bool operator==(const Features&) const = default;
};

/// What the attend steps of a direction need of a provider.
Features features_of(const Problem& problem, Direction direction);

/// What a provider is asked: the shapes of one rank's attend steps. Nothing here is a run-time
/// value; the capacity bounds rows and tiles of any one call.
struct TileProblem {
  Direction direction = Direction::kForward;
  DType dtype = DType::kF32;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  /// Query head i reads key head (i + group_offset) / group. A rank that shares a key head with
  /// others holds a part of its group.
  int64_t group = 1;
  int64_t group_offset = 0;
  int64_t dim_qk = 0;
  int64_t dim_v = 0;
  int64_t capacity_q = 0;   // rows of q
  int64_t capacity_k = 0;   // rows of k of the largest part
  int64_t score_bytes = 0;  // of scores that backward may keep at a time; 0: the provider's own
  Features features;

  bool operator==(const TileProblem&) const = default;
};

/// A tile and where its rows lie: token tile.q.at(i) is row q_row + i of q, tile.k.at(j) is row
/// k_row + j of k.
struct PlacedTile {
  Tile tile;
  int64_t q_row = 0;
  int64_t k_row = 0;
  int64_t shift = 0;  // Problem::shift of the sequence: where ALiBi's distance is 0
  bool operator==(const PlacedTile&) const = default;
};

/// Run-time values of what Features switches on. The score of query head h, query q and key k of a
/// sequence (h of the problem's heads, q and k counted inside the sequence) is, in this order:
///   s = scale q.k;  s = softcap tanh(s / softcap);  s += bias - slope_h |q + shift - k|;
///   s = modification(s);  -inf where the tile's band or the modification hides the pair.
/// Dropout multiplies the normalised probabilities by 0 or 1 / (1 - probability).
struct ScoreTerms {
  int64_t head_begin = 0;  // of the problem's query heads: the first that q holds
  double softcap = 0;
  TensorView slopes;  // [1, 1, the problem's query heads, 1], accumulator(dtype)
  TensorView bias;    // [batch or 1, sq or 1, heads or 1, skv] of dtype; extents of 1 serve all
  const Modification* modification = nullptr;
  Dropout dropout;
};

/// What a plan made of a list of tiles ahead of time: device tables, graphs.
class Staged {
 public:
  virtual ~Staged() = default;
};

/// In the place of a lender: this rank itself.
inline constexpr int kOwnRows = -1;

/// Rows [dst_row, dst_row + rows) of gathered keys and values, and whose they are: rows from
/// src_row on of a lender's tensors, or of this rank's own.
struct Pull {
  int lender = kOwnRows;
  int64_t src_row = 0;
  int64_t dst_row = 0;
  int64_t rows = 0;
  bool operator==(const Pull&) const = default;
};

/// Where the rows of a list of pulls are.
struct PulledKeys {
  TensorView k, v;  // own ones, [rows, heads, dim] without gaps
  Loans loans;      // borrowed: of each lender k and v, without gaps as well
};

/// O and LSE are carried: on entry the normalised result of all keys seen so far (O = 0 and
/// LSE = -inf when none), on return that of those and the tiles' keys. Rows of no tile stay as they
/// are; several tiles may touch a row and are applied in the order given.
/// Features::whole: nothing is read on entry, o is of dtype, and all query rows of the tiles are
/// written (O = 0 and LSE = -inf where a row sees no key).
struct ForwardTiles {
  TensorView q;    // [rows_q, heads_q, dim_qk]
  TensorView k;    // [rows_k, heads_kv, dim_qk]
  TensorView v;    // [rows_k, heads_kv, dim_v]
  TensorView o;    // [rows_q, heads_q, dim_v], accumulator(dtype)
  TensorView lse;  // [rows_q, heads_q, 1], accumulator(dtype), natural log
  std::span<const PlacedTile> tiles;
  double scale = 1;
  ScoreTerms terms;
  /// [1, 1, the problem's query heads, 1], accumulator(dtype): raised to the largest visible score
  /// of each head that q holds.
  TensorView max_logit;
  Stream stream;
  const Staged* staged = nullptr;  // of these tiles; null where the plan's stage() gave nothing
  /// Features::device_lengths: of each sequence that tiles name. Tokens of tiles at or beyond them
  /// are not there: their rows are never read as values, and stay as they are.
  ActualLengths lengths = {};
  /// Keys and values are not there yet: the launch brings the rows that stage_pulled() was told of,
  /// computes with what has arrived, and sets the words of all loans when it has read them. Own
  /// rows may be read where they are. k and v are memory for the gathered rows.
  const PulledKeys* pulled = nullptr;
};

/// Adds the tiles' gradients to dq, dk and dv. delta = rowsum(dout * o), o and lse are those of the
/// whole problem, so tiles may be computed anywhere in any grouping.
/// Features::whole: dq, dk and dv are of dtype and all rows of the tiles are written.
struct BackwardTiles {
  TensorView q, k, v;
  TensorView dout;        // [rows_q, heads_q, dim_v]
  TensorView lse;         // [rows_q, heads_q, 1], accumulator(dtype)
  TensorView delta;       // as lse; may be absent where results are whole and o is given
  TensorView o;           // [rows_q, heads_q, dim_v] of dtype where the caller has it, else absent
  TensorView dq, dk, dv;  // accumulator(dtype)
  std::span<const PlacedTile> tiles;
  double scale = 1;
  ScoreTerms terms;
  TensorView dbias;  // as terms.bias but accumulator(dtype): the tiles' gradients are added
  Stream stream;
  const Staged* staged = nullptr;  // as in ForwardTiles
  ActualLengths lengths = {};      // as in ForwardTiles
};

/// Immutable once prepared; run from several threads at once with a workspace each. No allocation
/// and no synchronisation with other ranks.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual size_t workspace_bytes() const = 0;
  /// What run-time calls with these tiles need, made once while the call is cold. Null: nothing.
  virtual Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile>) const {
    return std::shared_ptr<const Staged>();
  }
  /// As stage(), for calls that bring keys and values themselves. Every gathered row that a tile
  /// names lies in one pull.
  virtual Result<std::shared_ptr<const Staged>> stage_pulled(std::span<const PlacedTile> tiles,
                                                             std::span<const Pull> pulls) const;
  /// invalid_argument when a view or the workspace does not fit what was prepared.
  virtual Status forward(const ForwardTiles& tiles, Workspace workspace) const = 0;
  virtual Status backward(const BackwardTiles& tiles, Workspace workspace) const = 0;
};

/// Stateless; thread-safe.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;
  /// What decides, beside problem and device, how its plans compute a direction of the problem:
  /// recorded plans are loaded only where it is the same. unsupported where plans are chosen anew
  /// in every process, so that they cannot be recorded.
  virtual Result<std::string> identity(const Problem& problem, Direction direction,
                                       const Device& device) const = 0;
  /// Cheap and pure. An Offer is a promise that prepare succeeds.
  virtual Verdict consider(const TileProblem& problem, const Device& device) const = 0;
  virtual Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                                      const Device& device) const = 0;
  /// Whether plans of a problem that consider() offers bring keys and values themselves, of up to
  /// kMostLenders ranks. Cheap and pure.
  virtual Verdict consider_pulls(const TileProblem& problem, const Device& device) const;
};

/// All providers, best first, the reference last.
std::span<const Provider* const> providers();

/// One tile call for front ends that drive the loop themselves: prepares (or takes from
/// `provider`'s device) nothing beyond this call; allocates its scratch. FP32 (f64 for f64) carry
/// and gradients.
Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const ForwardTiles& tiles);
Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const BackwardTiles& tiles);

}  // namespace longspan
