#include "testkit/modifications.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>

namespace longspan::testkit {
namespace {

double bent(double score, const ScoreIndex&) { return score + 0.5 * std::sin(score); }
double bent_slope(double score, const ScoreIndex&) { return 1 + 0.5 * std::cos(score); }

/// Depends on all indices.
double tilt(const ScoreIndex& at) {
  return 0.6 + 0.2 * static_cast<double>((at.q + 2 * at.k + 3 * at.head + at.sequence) % 4);
}
double tilted(double score, const ScoreIndex& at) {
  return tilt(at) * score - 0.05 * static_cast<double>(std::abs(at.q - at.k));
}
double tilted_slope(double, const ScoreIndex& at) { return tilt(at); }

bool in_mesh(const ScoreIndex& at) {
  return (5 * at.q + 3 * at.k + at.head + at.sequence) % 7 != 0;
}

double cut(double score, const ScoreIndex& at) {
  return (at.q + at.k + at.head) % 3 == 1 ? -std::numeric_limits<double>::infinity() : score;
}
double cut_slope(double, const ScoreIndex&) { return 1; }

Modification functions_of(const std::string& name) {
  if (name == "bent") return {name, bent, bent_slope, nullptr};
  if (name == "tilted") return {name, tilted, tilted_slope, nullptr};
  if (name == "mesh") return {name, nullptr, nullptr, in_mesh};
  if (name == "cut") return {name, cut, cut_slope, nullptr};
  if (name == "all") {
    return {name, [](double score, const ScoreIndex& at) { return cut(bent(score, at), at); },
            bent_slope, in_mesh};
  }
  std::abort();
}

}  // namespace

const std::vector<std::string>& modification_names() {
  static const std::vector<std::string> names = {"bent", "tilted", "mesh", "cut", "all"};
  return names;
}

ModificationRef modification_named(const std::string& name) {
  if (name.empty()) return {};
  return {std::make_shared<const Modification>(functions_of(name))};
}

}  // namespace longspan::testkit
