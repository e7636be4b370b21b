#include "problem/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace longspan::keys {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool is_dtype(std::string_view t) { return parse_dtype(t).ok(); }
bool is_heads(std::string_view t) {
  const auto heads = counts(t, '/', 1, kMaxHeads);
  return heads && heads->size() == 2;
}
bool is_dim(std::string_view t) { return counts(t, ',', 1, kMaxDim) && t.find(',') == t.npos; }
bool is_lengths(std::string_view t) { return counts(t, ',', 0, kMaxTokens).has_value(); }
bool is_tokens(std::string_view t) { return is_lengths(t) && t.find(',') == t.npos; }
bool is_mask(std::string_view t) { return one_of(t, {"none", "causal", "bottom_right"}); }
bool is_align(std::string_view t) { return one_of(t, {"top_left", "bottom_right"}); }
bool is_window(std::string_view t) {
  const auto window = counts(t, ',', -1, kMaxTokens);
  return window && window->size() == 2;
}
bool is_layout(std::string_view t) { return one_of(t, {"bshd", "sbhd", "thd"}); }
bool is_real(std::string_view t) { return real(t).has_value(); }
bool is_softcap(std::string_view t) { return real(t) && *real(t) >= 0; }
bool is_alibi(std::string_view t) { return one_of(t, {"none", "default"}); }
bool is_bias(std::string_view t) {
  return one_of(t, {"none", "1,1", "b,1", "1,h", "b,h", "1,1,1,s"});
}
bool is_sink(std::string_view t) { return one_of(t, {"none", "off_by_one", "learnable"}); }
bool is_dropout(std::string_view t) { return real(t) && *real(t) >= 0 && *real(t) < 1; }
bool is_seed(std::string_view t) { return seed(t).has_value(); }
bool is_fp8(std::string_view t) { return one_of(t, {"none", "delayed", "current", "mxfp8"}); }
bool is_flag(std::string_view t) { return one_of(t, {"true", "false"}); }

}  // namespace

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> seed(std::string_view text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> real(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::vector<int64_t>> counts(std::string_view text, char separator, int64_t least,
                                           int64_t most) {
  std::vector<int64_t> values;
  for (const std::string_view part : split(text, separator)) {
    const std::optional<int64_t> value = integer(part);
    if (!value || *value < least || *value > most) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

namespace {

constexpr std::array kKeys = {
    Key{{"dtype", "f64, f32, f16, bf16", "required", "type of q, k, v, o and gradients"}, is_dtype},
    Key{{"heads", "Q/KV, each 1..1048576, Q a multiple of KV", "required",
         "query heads / key and value heads"},
        is_heads},
    Key{{"dim", "1..576", "required", "head dimension of q and k"}, is_dim},
    Key{{"lengths", "comma-separated integers 0..2147483648", "required",
         "query tokens of each sequence"},
        is_lengths},
    Key{{"mask", "none, causal, bottom_right", "none",
         "bottom_right means mask=causal align=bottom_right"},
        is_mask},
    Key{{"dim_v", "1..576", "dim", "head dimension of v and o"}, is_dim},
    Key{{"kv_lengths", "comma-separated integers 0..2147483648", "lengths",
         "key tokens of each sequence"},
        is_lengths},
    Key{{"align", "top_left, bottom_right", "top_left",
         "where the diagonal starts: shift 0, or key length - query length"},
        is_align},
    Key{{"window", "L,R with -1 for unbounded", "-1,-1",
         "query q sees keys from q + shift - L to q + shift + R"},
        is_window},
    Key{{"padded", "comma-separated integers 0..2147483648", "lengths",
         "rows that each sequence takes up in q"},
        is_lengths},
    Key{{"kv_padded", "comma-separated integers 0..2147483648", "kv_lengths",
         "rows that each sequence takes up in k and v"},
        is_lengths},
    Key{{"tokens", "an integer 0..2147483648", "sum of padded",
         "rows of q; more than the sum leaves unused rows at the end"},
        is_tokens},
    Key{{"kv_tokens", "an integer 0..2147483648", "sum of kv_padded", "rows of k and v"},
        is_tokens},
    Key{{"layout", "bshd, sbhd, thd", "bshd when all extents are equal, else thd",
         "order of the tensors' dimensions"},
        is_layout},
    Key{{"scale", "a finite number", "1/sqrt(dim)", "factor on q.k"}, is_real},
    Key{{"softcap", "a number >= 0", "0", "logit soft cap, 0 = off"}, is_softcap},
    Key{{"alibi", "none, default", "none", "linear position bias"}, is_alibi},
    Key{{"bias", "none or 1,1 b,1 1,h b,h 1,1,1,s", "none", "additive bias"}, is_bias},
    Key{{"sink", "none, off_by_one, learnable", "none", "extra logit in the denominator"}, is_sink},
    Key{{"dropout", "a number in [0,1)", "0", "probability of dropping"}, is_dropout},
    Key{{"dropout_seed", "an integer 0..2^64-1", "the run's seed", "seed of the dropout mask"},
        is_seed},
    Key{{"page", "an integer 0..2147483648", "0", "tokens a page of keys and values, 0 = off"},
        is_tokens},
    Key{{"fp8", "none, delayed, current, mxfp8", "none", "8-bit recipe"}, is_fp8},
    Key{{"deterministic", "true, false", "false", "equal bits from run to run"}, is_flag},
    Key{{"invariant", "true, false", "false", "equal bits for any number of ranks"}, is_flag},
    Key{{"max_logit", "true, false", "false", "return the largest logit per head"}, is_flag},
    Key{{"device_lengths", "true, false", "false",
         "lengths are capacities; every call brings the actual ones"},
        is_flag},
    Key{{"prefix", "comma-separated integers 0..2147483648", "no prefix",
         "first keys of each sequence that every query sees, whatever mask and window"},
        is_lengths},
    Key{{"chunk", "an integer 0..2147483648", "0",
         "queries see only keys of their own chunk of this many tokens, 0 = off"},
        is_tokens},
};

std::string all_key_names() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::span<const Key> all() { return kKeys; }

const Key* find(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const Key& key) { return key.info.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

Status check(std::string_view name, std::string_view value) {
  const auto invalid = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), "problem"};
  };
  const Key* key = find(name);
  if (key == nullptr) {
    return invalid(fmt::format("unknown key \"{}\" (value \"{}\"); the keys are {}", name, value,
                               all_key_names()));
  }
  if (value.empty())
    return invalid(fmt::format("{} is empty; allowed: {}", name, key->info.allowed));
  if (!key->accepts(value)) {
    return invalid(
        fmt::format("{}={} is not allowed; allowed: {}", name, value, key->info.allowed));
  }
  return {};
}

}  // namespace longspan::keys

namespace longspan {

std::span<const KeyInfo> problem_keys() {
  static constexpr auto kInfos = [] {
    std::array<KeyInfo, keys::kKeys.size()> infos{};
    for (size_t i = 0; i < infos.size(); ++i) infos[i] = keys::kKeys[i].info;
    return infos;
  }();
  return kInfos;
}

}  // namespace longspan
