#include <fmt/format.h>

#include <functional>
#include <initializer_list>

#include "providers/cudnn/graph.h"

namespace longspan::cudnn {
namespace {

/// A hash of values, one after the other.
class Hash {
 public:
  void add(std::initializer_list<int64_t> values) {
    for (const int64_t value : values) {
      hash_ ^= std::hash<int64_t>()(value) + 0x9e3779b97f4a7c15 + (hash_ << 6) + (hash_ >> 2);
    }
  }
  size_t value() const { return hash_; }

 private:
  size_t hash_ = 0;
};

std::string text(const std::optional<int64_t>& bound) {
  return bound ? std::to_string(*bound) : "none";
}

std::string text(const BiasShape& bias) {
  return bias.heads == 0 ? "" : fmt::format(" bias {} x {}", bias.heads, bias.rows);
}

}  // namespace

size_t GraphKeyHash::operator()(const GraphKey& k) const {
  Hash hash;
  hash.add({static_cast<int64_t>(k.direction),
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
            k.bias.heads,
            k.bias.rows,
            k.ordinal});
  for (const Strides& s : k.strides.tensors) hash.add({s.batch, s.row, s.head});
  return hash.value();
}

std::string text(const GraphKey& k) {
  std::string result = fmt::format(
      "{} {} heads {}/{} dim {}/{} batch {} rows {} x {}{}{}{} left {} right {}{}{} on cuda:{} "
      "strides",
      name(k.direction), name(k.dtype), k.heads_q, k.heads_kv, k.dim_qk, k.dim_v, k.batch, k.sq,
      k.skv, k.ragged ? " ragged" : "", k.padded ? " padded" : "",
      k.deterministic ? " deterministic" : "", text(k.mask.left), text(k.mask.right),
      k.mask.bottom_right ? " bottom right" : "", text(k.bias), k.ordinal);
  constexpr const char* kNames[kTensors] = {"q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"};
  for (size_t i = 0; i < kTensors; ++i) {
    const Strides& s = k.strides.tensors[i];
    if (s != Strides()) {
      result += fmt::format(" {} {},{},{}", kNames[i], s.batch, s.row, s.head);
    }
  }
  return result;
}

}  // namespace longspan::cudnn
