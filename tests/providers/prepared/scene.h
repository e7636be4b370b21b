// Problems, tiles and builds for the tests that need no device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "double_store.h"
#include "longspan/provider.h"
#include "providers/prepared/choose.h"

namespace longspan::prepared::testing {

inline Device h200() {
  Device device;
  device.name = "cuda:0";
  device.ordinal = 0;
  device.multiprocessors = 132;
  device.capability = 90;
  device.product = "NVIDIA H200";
  return device;
}

/// What the double's builds serve.
inline TileProblem problem(Direction direction = Direction::kForward) {
  return {.direction = direction,
          .dtype = DType::kBF16,
          .heads_q = 4,
          .heads_kv = 2,
          .group = 2,
          .dim_qk = 16,
          .dim_v = 16,
          .capacity_q = 1000,
          .capacity_k = 1000};
}

inline PlacedTile placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band = {}) {
  return {.tile = {.q = {0, nq}, .k = {0, nk}, .band = band}, .q_row = q_row, .k_row = k_row};
}

/// Builds of forward that only note their arguments, of these shapes and layouts.
inline Builds builds(const std::vector<std::pair<const char*, const char*>>& wanted) {
  DoubleStore folder;
  for (const auto& [mask, layout] : wanted) {
    const bool packed = layout == std::string("packed");
    json manifest =
        forward_manifest(std::string(mask) + layout, packed ? "records_packed" : "records", mask,
                         packed ? kForwardPacked : kForwardFull);
    manifest["serves"]["layout"] = layout;
    folder.add(manifest);
  }
  const auto store = folder.read();
  if (!store.ok()) throw std::runtime_error(store.error().text());
  std::vector<std::shared_ptr<const Kernel>> kernels;
  for (const Manifest& m : (*store)->manifests()) kernels.push_back(*(*store)->kernel(m));
  return {Engine::kFa4, std::move(kernels)};
}

}  // namespace longspan::prepared::testing
