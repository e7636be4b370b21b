// What attention computes.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "tensors.h"

namespace longspan::tool {

/// Those that the problem does not have, and the gradients of forward alone, are Tensor{}.
struct ResultTensors {
  Tensor o, lse;
  Tensor max_logit;  // as side_tensor(), and likewise dsink and dbias
  Tensor dq, dk, dv, dsink, dbias;
};

struct NamedResult {
  std::string_view name;
  Tensor* tensor = nullptr;
};
struct NamedConstResult {
  std::string_view name;
  const Tensor* tensor = nullptr;
};

/// All that are there, in this order: o lse max_logit dq dk dv dsink dbias.
std::vector<NamedResult> present(ResultTensors& results);
std::vector<NamedConstResult> present(const ResultTensors& results);

/// All that the problem has, in forward alone or in both directions, each made by `make`.
ResultTensors make_results(const Problem& problem, bool forward_only,
                           const std::function<Tensor(std::string_view name)>& make);

/// dsink, dbias and max_logit belong to no row.
bool has_rows(std::string_view name);

}  // namespace longspan::tool
