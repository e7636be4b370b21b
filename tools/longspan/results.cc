#include "results.h"

#include <array>
#include <utility>

namespace longspan::tool {
namespace {

constexpr std::array<std::pair<std::string_view, Tensor ResultTensors::*>, 8> kResults = {
    {{"o", &ResultTensors::o},
     {"lse", &ResultTensors::lse},
     {"max_logit", &ResultTensors::max_logit},
     {"dq", &ResultTensors::dq},
     {"dk", &ResultTensors::dk},
     {"dv", &ResultTensors::dv},
     {"dsink", &ResultTensors::dsink},
     {"dbias", &ResultTensors::dbias}}};

template <class Named, class Results>
std::vector<Named> all_present(Results& results) {
  std::vector<Named> named;
  for (const auto& [name, member] : kResults) {
    if ((results.*member).view.data != nullptr) named.push_back({name, &(results.*member)});
  }
  return named;
}

}  // namespace

std::vector<NamedResult> present(ResultTensors& results) {
  return all_present<NamedResult>(results);
}

std::vector<NamedConstResult> present(const ResultTensors& results) {
  return all_present<NamedConstResult>(results);
}

ResultTensors make_results(const Problem& problem, bool forward_only,
                           const std::function<Tensor(std::string_view name)>& make) {
  ResultTensors results;
  for (const auto& [name, member] : kResults) {
    if (forward_only && name.starts_with('d')) continue;
    if (has_rows(name) || has_side_tensor(problem, name)) results.*member = make(name);
  }
  return results;
}

bool has_rows(std::string_view name) {
  return name != "max_logit" && name != "dsink" && name != "dbias";
}

}  // namespace longspan::tool
