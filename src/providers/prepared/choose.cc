#include "providers/prepared/choose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "providers/rows/entries.h"

namespace longspan::prepared {
namespace {

/// Whether a build computes this problem, its mask and the rows of a call aside.
bool suits(const TileProblem& p, const Serves& s) {
  if (s.direction != p.direction || s.dtype != p.dtype) return false;
  if (s.dim != p.dim_qk || s.dim_v != p.dim_v || s.group != group_of(p)) return false;
  // Forwards give equal bits in any build.
  if (p.direction == Direction::kForward) return true;
  return s.deterministic == p.features.deterministic;
}

bool suits(const TileProblem& p, const Manifest& m) {
  if (!suits(p, m.serves)) return false;
  if (m.engine == Engine::kFa4) return true;
  return m.serves.heads_q == p.heads_q && m.serves.heads_kv == rows::key_heads(p);
}

/// Whether a build runs any tile of this shape.
bool serves_all(const TileProblem& p, const Manifest& m, Shape shape) {
  const Serves& s = m.serves;
  if (s.shape != shape || s.packed) return false;
  if (m.engine == Engine::kFa4) return true;
  return s.lengths && s.tokens_q >= p.capacity_q && s.tokens_k >= p.capacity_k;
}

/// The first shape that tiles may need and no build has, or none.
std::optional<Shape> missing(const TileProblem& p, std::span<const Manifest* const> builds) {
  for (const Shape shape : {Shape::kFull, Shape::kCausal, Shape::kWindow}) {
    if (shape == Shape::kWindow && !p.features.window) continue;
    const bool there =
        std::ranges::any_of(builds, [&](const Manifest* m) { return serves_all(p, *m, shape); });
    if (!there) return shape;
  }
  return std::nullopt;
}

std::string problem_text(const TileProblem& p) {
  const std::string window = p.features.window ? " window=128,0" : "";
  return fmt::format(
      "dtype={} heads={}/{} dim={} dim_v={} lengths={} kv_lengths={} mask=causal{}{}",
      name(p.dtype), p.heads_q, rows::key_heads(p), p.dim_qk, p.dim_v, p.capacity_q, p.capacity_k,
      window, p.features.deterministic ? " deterministic=true" : "");
}

constexpr std::string_view kArchitecture = "sm_90a";

/// Of builds for other devices that compute the problem there.
std::string other_architectures(const TileProblem& p, const Store& store) {
  std::set<std::string> names;
  for (const Manifest& m : store.manifests()) {
    if (m.architecture != kArchitecture && suits(p, m)) names.insert(m.architecture);
  }
  if (names.empty()) return "";
  return fmt::format(" for {} (those for {} are never run)", kArchitecture, fmt::join(names, ", "));
}

Decline not_prepared(const TileProblem& p, const Store& store, Shape shape) {
  return {
      DeclineCode::kNotPrepared,
      fmt::format("{} has no {} build{} of {} {}, dim {}, dim_v {}, {} query heads a key head; "
                  "run: longspan prepare --out {} --for \"{}\"",
                  store.folder(), name(shape), other_architectures(p, store), name(p.direction),
                  name(p.dtype), p.dim_qk, p.dim_v, group_of(p), store.folder(), problem_text(p))};
}

std::variant<Builds, Decline> opened(const Store& store, Engine engine,
                                     std::span<const Manifest* const> builds) {
  std::vector<std::shared_ptr<const Kernel>> kernels;
  for (const Manifest* m : builds) {
    Result<std::shared_ptr<const Kernel>> kernel = store.kernel(*m);
    if (!kernel.ok()) return Decline{DeclineCode::kNotPrepared, kernel.error().message};
    kernels.push_back(std::move(*kernel));
  }
  return Builds(engine, std::move(kernels));
}

}  // namespace

int64_t group_of(const TileProblem& p) { return p.heads_q / rows::key_heads(p); }

const Kernel* Builds::find(const Wish& wish) const {
  const Kernel* any = nullptr;
  for (const std::shared_ptr<const Kernel>& kernel : kernels_) {
    const Serves& s = kernel->manifest().serves;
    if (s.shape != wish.shape || s.packed != wish.packed) continue;
    if (engine_ == Engine::kFa4) return kernel.get();
    if (!s.lengths && s.tokens_q == wish.nq && s.tokens_k == wish.nk) return kernel.get();
    if (s.lengths && s.tokens_q >= wish.nq && s.tokens_k >= wish.nk) any = kernel.get();
  }
  return any;
}

bool may_serve(const Manifest& m, const Problem& p, Direction direction) {
  const Serves& s = m.serves;
  if (s.direction != direction || s.dtype != p.dtype) return false;
  if (s.dim != p.dim_qk || s.dim_v != p.dim_v || s.group > p.group()) return false;
  return direction == Direction::kForward || s.deterministic == p.deterministic;
}

std::variant<Builds, Decline> choose(const TileProblem& p, const Store& store) {
  std::optional<Shape> first_missing;
  for (const Engine engine : {Engine::kFa4, Engine::kFrost}) {
    std::vector<const Manifest*> builds;
    for (const Manifest& m : store.manifests()) {
      if (m.engine == engine && m.architecture == kArchitecture && suits(p, m))
        builds.push_back(&m);
    }
    const std::optional<Shape> lacking = missing(p, builds);
    if (!lacking) return opened(store, engine, builds);
    if (!first_missing || !builds.empty()) first_missing = lacking;
  }
  return not_prepared(p, store, *first_missing);
}

}  // namespace longspan::prepared
