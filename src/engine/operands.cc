#include "engine/operands.h"

namespace longspan {
namespace {

/// The tensors that both directions have.
template <class Operands>
OperandViews common_views(const Operands& x) {
  OperandViews views;
  at(views, Quantity::kQ) = x.q;
  at(views, Quantity::kK) = x.k;
  at(views, Quantity::kV) = x.v;
  at(views, Quantity::kO) = x.o;
  at(views, Quantity::kLse) = x.lse;
  return views;
}

Sides common_sides(const PreparedCall& call, const SideOperands& side) {
  const Problem& problem = call.problem();
  Sides sides;
  sides.sink = side.sink;
  sides.terms.softcap = side.softcap.value_or(problem.softcap);
  sides.terms.slopes = side.slopes.data != nullptr ? side.slopes : call.default_slopes();
  sides.terms.bias = side.bias;
  sides.terms.modification = problem.modification.functions.get();
  sides.terms.dropout = side.dropout.value_or(problem.dropout_values());
  if (call.trims_tiles()) sides.lengths = side.lengths;
  return sides;
}

}  // namespace

OperandViews views_of(const ForwardOperands& x) {
  OperandViews views = common_views(x);
  at(views, Quantity::kMaxLogit) = x.max_logit;
  return views;
}

OperandViews views_of(const BackwardOperands& x) {
  OperandViews views = common_views(x);
  at(views, Quantity::kDout) = x.dout;
  at(views, Quantity::kDq) = x.dq;
  at(views, Quantity::kDk) = x.dk;
  at(views, Quantity::kDv) = x.dv;
  return views;
}

Sides sides_of(const PreparedCall& call, const ForwardOperands& x) {
  return common_sides(call, x.side);
}

Sides sides_of(const PreparedCall& call, const BackwardOperands& x) {
  Sides sides = common_sides(call, x.side);
  sides.dsink = x.dsink;
  sides.dbias = x.dbias;
  return sides;
}

Outputs outputs_of(const ForwardOperands& x) { return {x.o, x.lse, x.max_logit}; }
Outputs outputs_of(const BackwardOperands& x) { return {x.dq, x.dk, x.dv, x.dsink, x.dbias}; }

}  // namespace longspan
