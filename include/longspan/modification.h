// Callbacks of the caller that change scores or hide pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace longspan {

/// Which score a callback is asked about. Tokens are counted inside their sequence.
struct ScoreIndex {
  int64_t sequence = 0;
  int64_t head = 0;  // of the problem's query heads
  int64_t q = 0;
  int64_t k = 0;
};

/// Pure functions: equal arguments give equal results, nothing else is read or changed. They are
/// called from several threads at once, any number of times and in any order; calls for pairs that
/// the mask hides may happen, their results are dropped.
struct Modification {
  /// Names what the functions compute: equal keys promise equal functions, on every rank. Plans and
  /// calls are kept under the key; with an empty key they are prepared anew each time.
  std::string key;
  /// The score after scale, softcap, ALiBi and bias in, the score that softmax takes out (-inf
  /// hides the pair). Empty: unchanged.
  std::function<double(double score, const ScoreIndex& index)> score;
  /// Derivative of `score` at the same arguments. Backward needs it wherever `score` is set.
  std::function<double(double score, const ScoreIndex& index)> derivative;
  /// Whether the query sees the key, on top of the mask. Empty: it does.
  std::function<bool(const ScoreIndex& index)> visible;
};

/// A modification as a part of a problem: equal when both are absent or both have the same key, and
/// never equal, not even to itself, without one.
struct ModificationRef {
  std::shared_ptr<const Modification> functions;

  explicit operator bool() const { return functions != nullptr; }
  bool operator==(const ModificationRef& other) const {
    if (!functions || !other.functions) return functions == other.functions;
    return !functions->key.empty() && functions->key == other.functions->key;
  }
};

}  // namespace longspan
