// The text form of problems: docs/reference/problem_text.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "longspan/problem.h"
#include "problem/keys.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "problem"};
}

const std::string* find(const ProblemFields& fields, const char* key) {
  const auto found = fields.values.find(key);
  return found == fields.values.end() ? nullptr : &found->second;
}

using List = std::vector<int64_t>;

List list_or(const ProblemFields& fields, const char* key, const List& otherwise) {
  const std::string* text = find(fields, key);
  return text ? *keys::counts(*text, ',', 0, kMaxTokens) : otherwise;
}

int64_t integer_or(const ProblemFields& fields, const char* key, int64_t otherwise) {
  const std::string* text = find(fields, key);
  return text ? *keys::integer(*text) : otherwise;
}

/// The sum, or kMaxTokens + 1 where it is more than that.
int64_t sum(const List& values) {
  int64_t total = 0;
  for (const int64_t value : values) total = std::min(total + value, kMaxTokens + 1);
  return total;
}

Status same_count(const List& values, const List& lengths, std::string_view key) {
  if (values.size() == lengths.size()) return {};
  return invalid(fmt::format("{} has {} entries but lengths has {}; one per sequence is needed",
                             key, values.size(), lengths.size()));
}

/// Extents of keys: lengths rounded up to pages.
List whole_pages(List lengths, int64_t page) {
  if (page == 0) return lengths;
  for (int64_t& length : lengths) length = (length + page - 1) / page * page;
  return lengths;
}

Result<Lengths> make_lengths(const ProblemFields& fields) {
  const List q = list_or(fields, "lengths", {});
  const List k = list_or(fields, "kv_lengths", q);
  LONGSPAN_CHECK_OK(same_count(k, q, "kv_lengths"));
  const List q_padded = list_or(fields, "padded", q);
  LONGSPAN_CHECK_OK(same_count(q_padded, q, "padded"));
  const List k_padded = list_or(fields, "kv_padded", whole_pages(k, integer_or(fields, "page", 0)));
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
  if (const std::string* window = find(fields, "window")) {
    const List sides = *keys::counts(*window, ',', -1, kMaxTokens);
    problem.window_left = sides[0];
    problem.window_right = sides[1];
  }
  problem.prefix = list_or(fields, "prefix", {});
  problem.chunk = integer_or(fields, "chunk", 0);
  problem.mask = mask == nullptr || *mask == "none" ? MaskKind::kNone : MaskKind::kCausal;
  problem.align = align && *align == "bottom_right" ? Align::kBottomRight : Align::kTopLeft;
  if (mask == nullptr || *mask != "bottom_right") return {};
  if (align && *align != "bottom_right") {
    return invalid(fmt::format("mask=bottom_right contradicts align={}; drop one of them", *align));
  }
  problem.align = Align::kBottomRight;
  return {};
}

/// The value of `values` that is called as the key says, else the first: the default.
template <class Value, size_t kCount>
Value value_of(const ProblemFields& fields, const char* key,
               const std::array<Value, kCount>& values) {
  const std::string* text = find(fields, key);
  for (const Value value : values) {
    if (text && *text == name(value)) return value;
  }
  return values[0];
}

double real_or(const ProblemFields& fields, const char* key, double otherwise) {
  const std::string* text = find(fields, key);
  return text ? *keys::real(*text) : otherwise;
}

bool flag(const ProblemFields& fields, const char* key) {
  const std::string* text = find(fields, key);
  return text && *text == "true";
}

void set_scores(Problem& problem, const ProblemFields& fields) {
  problem.scale = real_or(fields, "scale", 1 / std::sqrt(static_cast<double>(problem.dim_qk)));
  problem.softcap = real_or(fields, "softcap", 0);
  problem.alibi = value_of(fields, "alibi", std::array{Alibi::kNone, Alibi::kDefault});
  problem.bias =
      value_of(fields, "bias",
               std::array{Bias::kNone, Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S});
  problem.sink =
      value_of(fields, "sink", std::array{Sink::kNone, Sink::kOffByOne, Sink::kLearnable});
  problem.dropout = real_or(fields, "dropout", 0);
  if (const std::string* seed = find(fields, "dropout_seed")) {
    problem.dropout_seed = keys::seed(*seed);
  }
  problem.page = integer_or(fields, "page", 0);
  problem.fp8 =
      value_of(fields, "fp8", std::array{Fp8::kNone, Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8});
  problem.deterministic = flag(fields, "deterministic");
  problem.invariant = flag(fields, "invariant");
  problem.max_logit = flag(fields, "max_logit");
  problem.device_lengths = flag(fields, "device_lengths");
}

}  // namespace

ProblemFields ProblemFields::merged(const ProblemFields& over) const {
  ProblemFields result = over;
  result.values.insert(values.begin(), values.end());
  return result;
}

Result<ProblemFields> parse_fields(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  ProblemFields fields;
  while (true) {
    const size_t start = text.find_first_not_of(kBlanks);
    if (start == std::string_view::npos) return fields;
    text.remove_prefix(start);
    const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
    text.remove_prefix(word.size());
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return invalid(fmt::format("\"{}\" is not of the form key=value", word));
    }
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    LONGSPAN_CHECK_OK(keys::check(name, value));
    if (!fields.values.emplace(name, value).second) {
      return invalid(fmt::format("{} is given twice ({}={} the second time); give it once", name,
                                 name, value));
    }
  }
}

Result<Problem> make_problem(const ProblemFields& fields) {
  for (const char* key : {"dtype", "heads", "dim", "lengths"}) {
    if (!find(fields, key)) {
      return invalid(fmt::format("{} is missing; allowed: {}", key, keys::find(key)->info.allowed));
    }
  }
  for (const auto& [name, value] : fields.values) LONGSPAN_CHECK_OK(keys::check(name, value));
  Problem problem;
  LONGSPAN_TRY(problem.dtype, parse_dtype(*find(fields, "dtype")));
  const List heads = *keys::counts(*find(fields, "heads"), '/', 1, keys::kMaxHeads);
  problem.heads_q = heads[0];
  problem.heads_kv = heads[1];
  problem.dim_qk = integer_or(fields, "dim", 0);
  problem.dim_v = integer_or(fields, "dim_v", problem.dim_qk);
  LONGSPAN_CHECK_OK(set_mask(problem, fields));
  set_scores(problem, fields);
  LONGSPAN_TRY(problem.lengths, make_lengths(fields));
  const std::string* layout = find(fields, "layout");
  problem.layout = layout ? parse_layout(*layout) : default_layout(problem.lengths);
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
  if (window_left != -1 || window_right != -1) {
    text += fmt::format(" window={},{}", window_left, window_right);
  }
  if (q_padded != q) text += fmt::format(" padded={}", fmt::join(q_padded, ","));
  if (k_padded != whole_pages(k, page))
    text += fmt::format(" kv_padded={}", fmt::join(k_padded, ","));
  if (lengths.tokens_q != sum(q_padded)) text += fmt::format(" tokens={}", lengths.tokens_q);
  if (lengths.tokens_k != sum(k_padded)) text += fmt::format(" kv_tokens={}", lengths.tokens_k);
  if (layout != default_layout(lengths)) text += fmt::format(" layout={}", name(layout));
  if (scale != 1 / std::sqrt(static_cast<double>(dim_qk))) text += fmt::format(" scale={}", scale);
  if (softcap != 0) text += fmt::format(" softcap={}", softcap);
  if (alibi != Alibi::kNone) text += fmt::format(" alibi={}", name(alibi));
  if (bias != Bias::kNone) text += fmt::format(" bias={}", name(bias));
  if (sink != Sink::kNone) text += fmt::format(" sink={}", name(sink));
  if (dropout != 0) text += fmt::format(" dropout={}", dropout);
  if (dropout_seed) text += fmt::format(" dropout_seed={}", *dropout_seed);
  if (page != 0) text += fmt::format(" page={}", page);
  if (fp8 != Fp8::kNone) text += fmt::format(" fp8={}", name(fp8));
  if (deterministic) text += " deterministic=true";
  if (invariant) text += " invariant=true";
  if (max_logit) text += " max_logit=true";
  if (device_lengths) text += " device_lengths=true";
  if (!prefix.empty()) text += fmt::format(" prefix={}", fmt::join(prefix, ","));
  if (chunk != 0) text += fmt::format(" chunk={}", chunk);
  return text;
}

}  // namespace longspan
