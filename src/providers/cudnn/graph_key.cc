#include <fmt/format.h>

#include <functional>
#include <initializer_list>

#include "providers/cudnn/graph.h"

namespace longspan::cudnn {
namespace {

size_t combined(std::initializer_list<int64_t> values) {
  size_t hash = 0;
  for (const int64_t value : values) {
    hash ^= std::hash<int64_t>()(value) + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  }
  return hash;
}

std::string text(const std::optional<int64_t>& bound) {
  return bound ? std::to_string(*bound) : "none";
}

}  // namespace

size_t GraphKeyHash::operator()(const GraphKey& k) const {
  return combined({static_cast<int64_t>(k.direction),
                   static_cast<int64_t>(k.dtype),
                   k.heads_q,
                   k.heads_kv,
                   k.dim_qk,
                   k.dim_v,
                   k.deterministic,
                   k.ragged,
                   k.padded,
                   k.mask.left.value_or(-1),
                   k.mask.right.value_or(-1),
                   k.mask.bottom_right,
                   k.batch,
                   k.sq,
                   k.skv,
                   k.total_q,
                   k.total_k,
                   k.q.batch,
                   k.q.row,
                   k.q.head,
                   k.k.batch,
                   k.k.row,
                   k.k.head,
                   k.v.batch,
                   k.v.row,
                   k.v.head,
                   k.ordinal});
}

std::string text(const GraphKey& k) {
  return fmt::format(
      "{} {} heads {}/{} dim {}/{} batch {} rows {} x {}{}{}{} left {} right {}{} strides q "
      "{},{},{} k {},{},{} v {},{},{} on cuda:{}",
      name(k.direction), name(k.dtype), k.heads_q, k.heads_kv, k.dim_qk, k.dim_v, k.batch, k.sq,
      k.skv, k.ragged ? " ragged" : "", k.padded ? " padded" : "",
      k.deterministic ? " deterministic" : "", text(k.mask.left), text(k.mask.right),
      k.mask.bottom_right ? " bottom right" : "", k.q.batch, k.q.row, k.q.head, k.k.batch, k.k.row,
      k.k.head, k.v.batch, k.v.row, k.v.head, k.ordinal);
}

}  // namespace longspan::cudnn
