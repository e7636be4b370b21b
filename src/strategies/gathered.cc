// One backward part over the keys of all ranks: whole gradients, of which others get their rows.
//
// Own needed keys and those that arrive lie in one buffer, in order of the tokens. dq is written
// where the caller wants it, dk and dv beside the keys. From there rows go to their owners in
// accumulator type, own rows that no other rank uses to the caller, the others into sums.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "strategies/layouts.h"
#include "strategies/passes.h"

namespace longspan {

Part Passes::gathered_part() {
  const Rows& needed = e_.own.needed;
  key_rows_ = std::max(key_rows_, needed.rows);
  const auto gathered = [&](Quantity quantity) {
    return e_.workspace({.quantity = quantity,
                         .name = fmt::format("{}.gathered", name(quantity)),
                         .dtype = e_.problem.dtype,
                         .rows = needed.rows,
                         .heads = e_.problem.heads_kv,
                         .dim = e_.dim_of(quantity),
                         .runs = needed.runs});
  };
  return {.k = gathered(Quantity::kK),
          .v = gathered(Quantity::kV),
          .dk = gathered(Quantity::kDk),
          .dv = gathered(Quantity::kDv),
          .tiles = on_needed_rows(e_.own)};
}

/// Own keys move while the others travel.
void Passes::gather_keys(const Part& all, const std::vector<Part>& parts) {
  std::vector<Copy> copies;
  const auto add = [&](const Part& from, const Rows& held) {
    const std::vector<SharedRows> rows = shared_rows(held, e_.own.needed);
    add_copies(copies, rows, from.k, all.k, e_.problem.heads_kv);
    add_copies(copies, rows, from.v, all.v, e_.problem.heads_kv);
  };
  add(own_, e_.own_k);
  e_.builder.copy(StepKind::kUnpack, std::exchange(copies, {}));
  for (size_t i = 0; i < parts.size(); ++i) add(parts[i], passes_[i].incoming.needed);
  e_.builder.copy(StepKind::kUnpack, std::move(copies));
}

void Passes::pack_partials(const Part& all, const std::vector<Part>& parts) {
  std::vector<Copy> copies;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto rows = shared_rows(e_.own.needed, passes_[i].incoming.needed);
    add_copies(copies, rows, all.dk, parts[i].dk, e_.problem.heads_kv);
    add_copies(copies, rows, all.dv, parts[i].dv, e_.problem.heads_kv);
  }
  e_.builder.copy(StepKind::kPack, std::move(copies));
}

std::pair<Rows, Rows> Passes::own_rows() const {
  Rows alone = e_.own_k;
  for (const Pass& pass : passes_) alone = without(alone, pass.outgoing.needed);
  return {without(e_.own_k, alone), alone};
}

/// dk and dv of `rows`: what attend wrote, and 0 where no own query sees the key.
void Passes::own_gradients(const Part& all, const Rows& rows, BufferId dk, BufferId dv) {
  std::vector<Copy> copies;
  std::vector<Fill> fills;
  const Rows unseen = without(rows, e_.own.needed);
  for (const auto& [from, to] : {std::pair{all.dk, dk}, {all.dv, dv}}) {
    add_copies(copies, shared_rows(e_.own.needed, rows), from, to, e_.problem.heads_kv);
    for (const Run& run : unseen.runs) fills.push_back({to, run.row, run.valid});
  }
  e_.builder.copy(StepKind::kUnpack, std::move(copies));
  e_.builder.fill(std::move(fills));
}

void Passes::gather_whole() {
  const Slot at = slot();
  const std::vector<Part> parts = exchange_keys(at);
  const Part all = gathered_part();
  gather_keys(all, parts);
  attend({all});
  pack_partials(all, parts);
  const auto [used, alone] = own_rows();
  if (!used.runs.empty()) {
    own_.dk = accumulator_buffer(e_, Quantity::kDk);
    own_.dv = accumulator_buffer(e_, Quantity::kDv);
  }
  std::vector<Copy> additions = exchange_partials(parts, at);
  own_gradients(all, alone, b_.dk, b_.dv);
  if (used.runs.empty()) return;
  own_gradients(all, used, own_.dk, own_.dv);
  e_.builder.copy(StepKind::kAccumulate, std::move(additions));
  std::vector<Copy> home = copy_rows(used, own_.dk, b_.dk, e_.problem.heads_kv);
  const std::vector<Copy> more = copy_rows(used, own_.dv, b_.dv, e_.problem.heads_kv);
  home.insert(home.end(), more.begin(), more.end());
  e_.builder.copy(StepKind::kUnpack, std::move(home));
}

}  // namespace longspan
