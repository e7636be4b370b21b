// The text form of problems: CONVENTIONS "Problem text".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "longspan/problem.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "problem"};
}

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
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

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
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

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr int64_t kMaxHeads = 1 << 20;

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
bool is_seed(std::string_view t) { return integer(t) && *integer(t) >= 0; }
bool is_fp8(std::string_view t) { return one_of(t, {"none", "delayed", "current", "mxfp8"}); }
bool is_flag(std::string_view t) { return one_of(t, {"true", "false"}); }

struct Key {
  KeyInfo info;
  bool (*accepts)(std::string_view);
};

constexpr std::array kKeys = {
    Key{{"dtype", "f64, f32, f16, bf16", "required", "type of q, k, v, o and gradients", true},
        is_dtype},
    Key{{"heads", "Q/KV, each 1..1048576, Q a multiple of KV", "required",
         "query heads / key and value heads", true},
        is_heads},
    Key{{"dim", "1..576", "required", "head dimension of q and k", true}, is_dim},
    Key{{"lengths", "comma-separated integers 0..2147483648", "required",
         "query tokens of each sequence", true},
        is_lengths},
    Key{{"mask", "none, causal, bottom_right", "none",
         "bottom_right means mask=causal align=bottom_right", true},
        is_mask},
    Key{{"dim_v", "1..576", "dim", "head dimension of v and o", true}, is_dim},
    Key{{"kv_lengths", "comma-separated integers 0..2147483648", "lengths",
         "key tokens of each sequence", true},
        is_lengths},
    Key{{"align", "top_left, bottom_right", "top_left",
         "where the diagonal starts: shift 0, or key length - query length", true},
        is_align},
    Key{{"window", "L,R with -1 for unbounded", "-1,-1",
         "query q sees keys from q + shift - L to q + shift + R", false},
        is_window},
    Key{{"padded", "comma-separated integers 0..2147483648", "lengths",
         "rows that each sequence takes up in q", true},
        is_lengths},
    Key{{"kv_padded", "comma-separated integers 0..2147483648", "kv_lengths",
         "rows that each sequence takes up in k and v", true},
        is_lengths},
    Key{{"tokens", "an integer 0..2147483648", "sum of padded",
         "rows of q; more than the sum leaves unused rows at the end", true},
        is_tokens},
    Key{{"kv_tokens", "an integer 0..2147483648", "sum of kv_padded", "rows of k and v", true},
        is_tokens},
    Key{{"layout", "bshd, sbhd, thd", "bshd when all extents are equal, else thd",
         "order of the tensors' dimensions", true},
        is_layout},
    Key{{"scale", "a finite number", "1/sqrt(dim)", "factor on q.k", true}, is_real},
    Key{{"softcap", "a number >= 0", "0", "logit soft cap, 0 = off", false}, is_softcap},
    Key{{"alibi", "none, default", "none", "linear position bias", false}, is_alibi},
    Key{{"bias", "none or 1,1 b,1 1,h b,h 1,1,1,s", "none", "additive bias", false}, is_bias},
    Key{{"sink", "none, off_by_one, learnable", "none", "extra logit in the denominator", false},
        is_sink},
    Key{{"dropout", "a number in [0,1)", "0", "probability of dropping", false}, is_dropout},
    Key{{"dropout_seed", "an integer >= 0", "the run's seed", "seed of the dropout mask", false},
        is_seed},
    Key{{"page", "an integer 0..2147483648", "0", "tokens a page of keys and values, 0 = off", false},
        is_tokens},
    Key{{"fp8", "none, delayed, current, mxfp8", "none", "8-bit recipe", false}, is_fp8},
    Key{{"deterministic", "true, false", "false", "equal bits from run to run", false}, is_flag},
    Key{{"invariant", "true, false", "false", "equal bits for any number of ranks", false}, is_flag},
    Key{{"max_logit", "true, false", "false", "return the largest logit per head", false}, is_flag},
};

const Key* find_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const Key& key) { return key.info.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

std::string all_key_names() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Two spellings of the default are one: "0.0" of softcap, "-1,-1" of window.
bool is_default(const Key& key, std::string_view value) {
  if (value == key.info.standard) return true;
  if (key.accepts == is_softcap || key.accepts == is_dropout) return *real(value) == 0;
  if (key.info.name == "page") return *integer(value) == 0;
  return false;
}

const std::string* find(const ProblemFields& fields, const char* key) {
  const auto found = fields.values.find(key);
  return found == fields.values.end() ? nullptr : &found->second;
}

using List = std::vector<int64_t>;

List list_or(const ProblemFields& fields, const char* key, const List& otherwise) {
  const std::string* text = find(fields, key);
  return text ? *counts(*text, ',', 0, kMaxTokens) : otherwise;
}

int64_t integer_or(const ProblemFields& fields, const char* key, int64_t otherwise) {
  const std::string* text = find(fields, key);
  return text ? *integer(*text) : otherwise;
}

/// The sum, or kMaxTokens + 1 where it is more than that.
int64_t sum(const List& values) {
  int64_t total = 0;
  for (const int64_t value : values) total = std::min(total + value, kMaxTokens + 1);
  return total;
}

Status same_count(const List& values, const List& lengths, std::string_view key) {
  if (values.size() == lengths.size()) return {};
  return invalid(fmt::format("{} has {} entries but lengths has {}; one per sequence is needed", key,
                             values.size(), lengths.size()));
}

Result<Lengths> make_lengths(const ProblemFields& fields) {
  const List q = list_or(fields, "lengths", {});
  const List k = list_or(fields, "kv_lengths", q);
  LONGSPAN_CHECK_OK(same_count(k, q, "kv_lengths"));
  const List q_padded = list_or(fields, "padded", q);
  LONGSPAN_CHECK_OK(same_count(q_padded, q, "padded"));
  const List k_padded = list_or(fields, "kv_padded", k);
  LONGSPAN_CHECK_OK(same_count(k_padded, q, "kv_padded"));
  Lengths lengths;
  lengths.sequences.reserve(q.size());
  int64_t q_end = 0;
  int64_t k_end = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    lengths.sequences.push_back({q[i], k[i], q_padded[i], k_padded[i], q_end, k_end});
    q_end += q_padded[i];
    k_end += k_padded[i];
  }
  lengths.tokens_q = integer_or(fields, "tokens", sum(q_padded));
  lengths.tokens_k = integer_or(fields, "kv_tokens", sum(k_padded));
  return lengths;
}

Layout default_layout(const Lengths& lengths) {
  const Sequence& first = lengths.sequences.front();
  const auto same = [&](const Sequence& s) {
    return s.q_extent == first.q_extent && s.k_extent == first.k_extent;
  };
  const auto count = static_cast<int64_t>(lengths.sequences.size());
  const bool equal = std::all_of(lengths.sequences.begin(), lengths.sequences.end(), same) &&
                     lengths.tokens_q == count * first.q_extent &&
                     lengths.tokens_k == count * first.k_extent;
  return equal ? Layout::kBSHD : Layout::kTHD;
}

Layout parse_layout(std::string_view text) {
  return text == "bshd" ? Layout::kBSHD : text == "sbhd" ? Layout::kSBHD : Layout::kTHD;
}

Status set_mask(Problem& problem, const ProblemFields& fields) {
  const std::string* mask = find(fields, "mask");
  const std::string* align = find(fields, "align");
  problem.mask = mask == nullptr || *mask == "none" ? MaskKind::kNone : MaskKind::kCausal;
  problem.align = align && *align == "bottom_right" ? Align::kBottomRight : Align::kTopLeft;
  if (mask == nullptr || *mask != "bottom_right") return {};
  if (align && *align != "bottom_right") {
    return invalid(fmt::format("mask=bottom_right contradicts align={}; drop one of them", *align));
  }
  problem.align = Align::kBottomRight;
  return {};
}

}  // namespace

std::span<const KeyInfo> problem_keys() {
  static constexpr auto kInfos = [] {
    std::array<KeyInfo, kKeys.size()> infos{};
    for (size_t i = 0; i < kKeys.size(); ++i) infos[i] = kKeys[i].info;
    return infos;
  }();
  return kInfos;
}

ProblemFields ProblemFields::merged(const ProblemFields& over) const {
  ProblemFields result = over;
  result.values.insert(values.begin(), values.end());
  return result;
}

Result<ProblemFields> parse_fields(std::string_view text) {
  ProblemFields fields;
  while (true) {
    const size_t start = text.find_first_not_of(" \t\n");
    if (start == std::string_view::npos) return fields;
    text.remove_prefix(start);
    const std::string_view word = text.substr(0, text.find_first_of(" \t\n"));
    text.remove_prefix(word.size());
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return invalid(fmt::format("\"{}\" is not of the form key=value", word));
    }
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    const Key* key = find_key(name);
    if (key == nullptr) {
      return invalid(fmt::format("unknown key \"{}\" (value \"{}\"); the keys are {}", name, value,
                                 all_key_names()));
    }
    if (value.empty()) {
      return invalid(fmt::format("{} is empty; allowed: {}", name, key->info.allowed));
    }
    if (!key->accepts(value)) {
      return invalid(fmt::format("{}={} is not allowed; allowed: {}", name, value,
                                 key->info.allowed));
    }
    if (!fields.values.emplace(name, value).second) {
      return invalid(fmt::format("{} is given twice ({}={} the second time); give it once", name,
                                 name, value));
    }
  }
}

Result<Problem> make_problem(const ProblemFields& fields) {
  for (const char* key : {"dtype", "heads", "dim", "lengths"}) {
    if (!find(fields, key)) {
      return invalid(fmt::format("{} is missing; allowed: {}", key, find_key(key)->info.allowed));
    }
  }
  Problem problem;
  LONGSPAN_TRY(problem.dtype, parse_dtype(*find(fields, "dtype")));
  const List heads = *counts(*find(fields, "heads"), '/', 1, kMaxHeads);
  problem.heads_q = heads[0];
  problem.heads_kv = heads[1];
  problem.dim_qk = integer_or(fields, "dim", 0);
  problem.dim_v = integer_or(fields, "dim_v", problem.dim_qk);
  LONGSPAN_CHECK_OK(set_mask(problem, fields));
  const std::string* scale = find(fields, "scale");
  problem.scale = scale ? *real(*scale) : 1 / std::sqrt(static_cast<double>(problem.dim_qk));
  LONGSPAN_TRY(problem.lengths, make_lengths(fields));
  const std::string* layout = find(fields, "layout");
  problem.layout = layout ? parse_layout(*layout) : default_layout(problem.lengths);
  for (const Key& key : kKeys) {
    const auto given = fields.values.find(std::string(key.info.name));
    if (key.info.offered || given == fields.values.end()) continue;
    if (!is_default(key, given->second)) problem.not_offered.insert(*given);
  }
  return validated(std::move(problem));
}

Result<Problem> parse_problem(std::string_view text) {
  LONGSPAN_TRY(const ProblemFields fields, parse_fields(text));
  return make_problem(fields);
}

std::string Problem::text() const {
  List q, k, q_padded, k_padded;
  for (const Sequence& s : lengths.sequences) {
    q.push_back(s.q_length);
    k.push_back(s.k_length);
    q_padded.push_back(s.q_extent);
    k_padded.push_back(s.k_extent);
  }
  std::string text = fmt::format("dtype={} heads={}/{} dim={} lengths={} mask={}", name(dtype),
                                 heads_q, heads_kv, dim_qk, fmt::join(q, ","), name(mask));
  if (dim_v != dim_qk) text += fmt::format(" dim_v={}", dim_v);
  if (k != q) text += fmt::format(" kv_lengths={}", fmt::join(k, ","));
  if (align != Align::kTopLeft) text += fmt::format(" align={}", name(align));
  const auto other = [&](const char* key) {
    const auto found = not_offered.find(key);
    if (found != not_offered.end()) text += fmt::format(" {}={}", key, found->second);
  };
  other("window");
  if (q_padded != q) text += fmt::format(" padded={}", fmt::join(q_padded, ","));
  if (k_padded != k) text += fmt::format(" kv_padded={}", fmt::join(k_padded, ","));
  if (lengths.tokens_q != sum(q_padded)) text += fmt::format(" tokens={}", lengths.tokens_q);
  if (lengths.tokens_k != sum(k_padded)) text += fmt::format(" kv_tokens={}", lengths.tokens_k);
  if (layout != default_layout(lengths)) text += fmt::format(" layout={}", name(layout));
  if (scale != 1 / std::sqrt(static_cast<double>(dim_qk))) text += fmt::format(" scale={}", scale);
  for (const char* key : {"softcap", "alibi", "bias", "sink", "dropout", "dropout_seed", "page",
                          "fp8", "deterministic", "invariant", "max_logit"}) {
    other(key);
  }
  return text;
}

}  // namespace longspan
