// Cases with score terms: made at random, run by a provider, computed by definition.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/support.h"

namespace longspan::testing {

/// Which terms a scene has.
struct Terms {
  bool softcap = false;
  bool alibi = false;
  Bias bias = Bias::kNone;
  bool dropout = false;
  bool score = false;    // a callback changes scores and hides some pairs by -inf
  bool visible = false;  // a callback hides pairs
  bool max_logit = false;

  std::string text() const;
};
Terms random_terms(std::mt19937_64& random);

/// A case whose terms are views of the tensors here.
struct Scene {
  Case c;
  Inputs in;
  Tensor slopes;
  Tensor bias;
  std::unique_ptr<Modification> modification;
  std::string terms;

  std::string text() const { return terms + c.text(); }
};

/// Adds the terms. The query heads become part of a problem that may have more.
Scene add_terms(Case c, const Terms& terms, uint64_t seed);

/// The same after giving the tiles tokens of some sequences, with strides and shifts.
Scene make_scene(Case c, const Terms& terms, uint64_t seed);

/// As in Scene::bias: [batch or 1, sq or 1, heads or 1, skv].
Tensor make_bias(const Scene& scene, DType dtype);

/// Gives the heads slopes of both signs, and the only tile's 300 queries and keys the tokens from
/// `far` on.
void set_slopes_of_far_tokens(Scene& scene, int64_t far);

struct SceneOutcome {
  Carry carry;
  Gradients gradients;
  Tensor max_logit;  // of all heads of the problem
  Tensor dbias;
};
/// Forward and backward in two calls each, the second taking up what the first left.
SceneOutcome run_scene(const Provider& provider, Scene& scene, const Device& device, DType wide);

struct Definition {
  std::vector<double> o, lse, dq, dk, dv, dbias;
  std::vector<double> max_logit;  // per query head of q
  /// Of the gradients: the sums of the magnitudes of what p (dP - delta) adds up or cancels.
  struct Magnitudes {
    std::vector<double> dq, dk, dbias;
  };
  Magnitudes magnitudes;
};
/// Every pair by itself, in float64.
Definition define(const Scene& scene);

/// Runs the scene, where it is offered, and compares with its definition by the bars of the
/// conventions.
void check_scene(const Provider& provider, Scene& scene, const Device& device);

}  // namespace longspan::testing
