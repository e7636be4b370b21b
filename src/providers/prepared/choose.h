// Which builds of a store compute a problem.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "longspan/decline.h"
#include "longspan/provider.h"
#include "providers/prepared/kernel.h"
#include "providers/prepared/store.h"

namespace longspan::prepared {

/// What a launch needs of a build.
struct Wish {
  Shape shape = Shape::kFull;
  bool packed = false;
  int64_t nq = 0, nk = 0;  // rows of its longest entry
};

/// Builds of one engine that compute any tiles of the problem.
class Builds {
 public:
  Builds(Engine engine, std::vector<std::shared_ptr<const Kernel>> kernels)
      : engine_(engine), kernels_(std::move(kernels)) {}
  Engine engine() const { return engine_; }
  std::span<const std::shared_ptr<const Kernel>> kernels() const { return kernels_; }
  /// Null when there is none. One of exactly these rows goes before one of any.
  const Kernel* find(const Wish& wish) const;

 private:
  Engine engine_;
  std::vector<std::shared_ptr<const Kernel>> kernels_;
};

/// Query heads of a key head, among those that the problem's query heads read.
int64_t group_of(const TileProblem& problem);

/// Whether a build may compute tiles of the problem on some rank, which has a part of its heads.
bool may_serve(const Manifest& manifest, const Problem& problem, Direction direction);

/// The decline says which build is missing and how to make it, or why one could not be opened.
std::variant<Builds, Decline> choose(const TileProblem& problem, const Store& store);

}  // namespace longspan::prepared
