#include "providers/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/workers.h"
#include "providers/cpu/reference_rows.h"
#include "providers/cpu/rules.h"

namespace longspan {

constinit const CpuReference kCpuReference;

namespace cpu {
namespace {

/// A tensor's rows as float64, head after head.
struct Rows {
  double* data = nullptr;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;

  double* at(int64_t row, int64_t head) const { return data + (head * rows + row) * dim; }
  int64_t count() const { return rows * heads * dim; }
};

class Reference final : public Plan {
 public:
  Reference(const TileProblem& problem, std::shared_ptr<Workers> workers)
      : problem_(problem), workers_(std::move(workers)) {
    const int64_t q = problem.capacity_q;
    const int64_t k = problem.capacity_k;
    place(q_, q, problem.heads_q, problem.dim_qk);
    place(k_, k, problem.heads_kv, problem.dim_qk);
    place(v_, k, problem.heads_kv, problem.dim_v);
    if (problem.direction == Direction::kBackward) {
      place(dout_, q, problem.heads_q, problem.dim_v);
      place(lse_, q, problem.heads_q, 1);
      place(delta_, q, problem.heads_q, 1);
    }
    // Per thread: the probabilities of a row, and two rows of results.
    slot_ = k + 2 * std::max(problem.dim_qk, problem.dim_v);
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(taken_ + slot_ * workers_->threads()) * sizeof(double);
  }

  Status forward(const ForwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAnyFloat));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    double* const memory = static_cast<double*>(workspace.data);
    for (const PlacedTile& tile : call.tiles) {
      if (empty(tile.tile)) continue;
      read_queries(memory, call.q, q_, tile);
      read_keys(memory, call.k, k_, tile);
      read_keys(memory, call.v, v_, tile);
      const int64_t rows = tile.tile.q.size();
      workers_->for_each(rows * problem_.heads_q, [&](int64_t index, int slot) {
        forward_row(call, tile, memory, index % rows, index / rows, slot);
      });
    }
    return {};
  }

  Status backward(const BackwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAnyFloat));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    double* const memory = static_cast<double*>(workspace.data);
    for (const PlacedTile& tile : call.tiles) {
      if (empty(tile.tile)) continue;
      read_queries(memory, call.q, q_, tile);
      read_keys(memory, call.k, k_, tile);
      read_keys(memory, call.v, v_, tile);
      read_queries(memory, call.dout, dout_, tile);
      read_queries(memory, call.lse, lse_, tile);
      read_queries(memory, call.delta, delta_, tile);
      const int64_t queries = tile.tile.q.size();
      workers_->for_each(queries * problem_.heads_q, [&](int64_t index, int slot) {
        query_row(call, tile, memory, index % queries, index / queries, slot);
      });
      const int64_t keys = tile.tile.k.size();
      workers_->for_each(keys * problem_.heads_kv, [&](int64_t index, int slot) {
        key_row(call, tile, memory, index % keys, index / keys, slot);
      });
    }
    return {};
  }

 private:
  /// Where a tensor lies in the workspace; `data` is filled in by placed().
  struct Slot {
    int64_t offset = 0;
    Rows rows;
  };

  void place(Slot& slot, int64_t rows, int64_t heads, int64_t dim) {
    slot = {taken_, {nullptr, rows, heads, dim}};
    taken_ += slot.rows.count();
  }

  static Rows placed(const Slot& slot, double* memory) {
    Rows rows = slot.rows;
    rows.data = memory + slot.offset;
    return rows;
  }

  double* buffer(double* memory, int slot) const { return memory + taken_ + slot * slot_; }

  void read(double* memory, const TensorView& view, const Slot& slot, int64_t first,
            int64_t count) const {
    const Rows rows = placed(slot, memory);
    workers_->for_each(count, [&](int64_t i, int) {
      for (int64_t head = 0; head < rows.heads; ++head) {
        read_row(view, first + i, head, rows.at(first + i, head));
      }
    });
  }

  void read_queries(double* memory, const TensorView& view, const Slot& slot,
                    const PlacedTile& tile) const {
    read(memory, view, slot, tile.q_row, tile.tile.q.size());
  }

  void read_keys(double* memory, const TensorView& view, const Slot& slot,
                 const PlacedTile& tile) const {
    read(memory, view, slot, tile.k_row, tile.tile.k.size());
  }

  void forward_row(const ForwardTiles& call, const PlacedTile& tile, double* memory, int64_t i,
                   int64_t head, int slot) const {
    const Range seen = visible_keys(tile.tile.band, i, tile.tile.k.size());
    if (seen.first >= seen.last) return;
    const int64_t row = tile.q_row + i;
    const int64_t kv = key_head(problem_, head);
    const double* const q = placed(q_, memory).at(row, head);
    const double* const k = placed(k_, memory).at(tile.k_row, kv);
    const double* const v = placed(v_, memory).at(tile.k_row, kv);
    double* const p = buffer(memory, slot);
    double* const o = p + problem_.capacity_k;
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t j = seen.first; j < seen.last; ++j) {
      p[j] = call.scale * loops_.dot(q, k + j * problem_.dim_qk, problem_.dim_qk);
      max = std::max(max, p[j]);
    }
    double sum = 0;
    std::fill_n(o, problem_.dim_v, 0.0);
    for (int64_t j = seen.first; j < seen.last; ++j) {
      p[j] = std::exp(p[j] - max);
      sum += p[j];
      loops_.add(o, v + j * problem_.dim_v, p[j], problem_.dim_v);
    }
    carry(call, row, head, o, max + std::log(sum), sum);
  }

  /// Merges o / sum, the result over keys of log-sum-exp `lse`, into the carried row.
  void carry(const ForwardTiles& call, int64_t row, int64_t head, double* o, double lse,
             double sum) const {
    double carried = 0;
    read_row(call.lse, row, head, &carried);
    double* const before = o + problem_.dim_v;
    double keep = 0;
    double weight = 1;
    if (carried != -std::numeric_limits<double>::infinity()) {
      const double top = std::max(carried, lse);
      const double total = std::exp(carried - top) + std::exp(lse - top);
      keep = std::exp(carried - top) / total;
      weight = std::exp(lse - top) / total;
      lse = top + std::log(total);
      read_row(call.o, row, head, before);
    }
    for (int64_t d = 0; d < problem_.dim_v; ++d) {
      o[d] = o[d] / sum * weight + (keep != 0 ? keep * before[d] : 0);
    }
    write_row(call.o, row, head, o);
    write_row(call.lse, row, head, &lse);
  }

  /// Probability and score gradient of a pair.
  struct Pair {
    double p = 0;
    double ds = 0;
  };

  Pair pair(double* memory, double scale, int64_t q_row, int64_t head, int64_t k_row,
            int64_t kv) const {
    const double lse = *placed(lse_, memory).at(q_row, head);
    if (lse == -std::numeric_limits<double>::infinity()) return {};
    const double s = scale * loops_.dot(placed(q_, memory).at(q_row, head),
                                        placed(k_, memory).at(k_row, kv), problem_.dim_qk);
    const double dp = loops_.dot(placed(dout_, memory).at(q_row, head),
                                 placed(v_, memory).at(k_row, kv), problem_.dim_v);
    const double p = std::exp(s - lse);
    return {p, p * (dp - *placed(delta_, memory).at(q_row, head))};
  }

  void query_row(const BackwardTiles& call, const PlacedTile& tile, double* memory, int64_t i,
                 int64_t head, int slot) const {
    const Range seen = visible_keys(tile.tile.band, i, tile.tile.k.size());
    if (seen.first >= seen.last) return;
    const int64_t row = tile.q_row + i;
    const int64_t kv = key_head(problem_, head);
    double* const dq = buffer(memory, slot) + problem_.capacity_k;
    std::fill_n(dq, problem_.dim_qk, 0.0);
    for (int64_t j = tile.k_row + seen.first; j < tile.k_row + seen.last; ++j) {
      const double ds = pair(memory, call.scale, row, head, j, kv).ds;
      loops_.add(dq, placed(k_, memory).at(j, kv), ds, problem_.dim_qk);
    }
    add_row(call.dq, row, head, dq, call.scale);
  }

  void key_row(const BackwardTiles& call, const PlacedTile& tile, double* memory, int64_t j,
               int64_t kv, int slot) const {
    const Range heads = query_heads(problem_, kv);
    const Range seen = visible_keys(transposed(tile.tile.band), j, tile.tile.q.size());
    if (heads.first >= heads.last || seen.first >= seen.last) return;
    const int64_t row = tile.k_row + j;
    double* const dk = buffer(memory, slot) + problem_.capacity_k;
    double* const dv = dk + std::max(problem_.dim_qk, problem_.dim_v);
    std::fill_n(dk, problem_.dim_qk, 0.0);
    std::fill_n(dv, problem_.dim_v, 0.0);
    for (int64_t head = heads.first; head < heads.last; ++head) {
      for (int64_t i = tile.q_row + seen.first; i < tile.q_row + seen.last; ++i) {
        const Pair both = pair(memory, call.scale, i, head, row, kv);
        loops_.add(dk, placed(q_, memory).at(i, head), both.ds, problem_.dim_qk);
        loops_.add(dv, placed(dout_, memory).at(i, head), both.p, problem_.dim_v);
      }
    }
    add_row(call.dk, row, kv, dk, call.scale);
    add_row(call.dv, row, kv, dv, 1);
  }

  TileProblem problem_;
  std::shared_ptr<Workers> workers_;
  const RowLoops& loops_ = row_loops();
  Slot q_, k_, v_, dout_, lse_, delta_;
  int64_t taken_ = 0;  // doubles before the threads' buffers
  int64_t slot_ = 0;   // doubles of one thread's buffer
};

}  // namespace
}  // namespace cpu

Verdict CpuReference::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = cpu::refusal(problem, device)) return *decline;
  return Offer{.detail = "f64 arithmetic, row by row"};
}

Result<std::shared_ptr<const Plan>> CpuReference::prepare(const TileProblem& problem,
                                                          const Device& device) const {
  LONGSPAN_CHECK_OK(cpu::preparable(problem, device));
  return std::shared_ptr<const Plan>(std::make_shared<cpu::Reference>(problem, device.workers));
}

}  // namespace longspan
