// The text form of problems: CONVENTIONS "Problem text".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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
  const std::string* scale = find(fields, "scale");
  problem.scale = scale ? *keys::real(*scale) : 1 / std::sqrt(static_cast<double>(problem.dim_qk));
  LONGSPAN_TRY(problem.lengths, make_lengths(fields));
  const std::string* layout = find(fields, "layout");
  problem.layout = layout ? parse_layout(*layout) : default_layout(problem.lengths);
  for (const keys::Key& key : keys::all()) {
    const auto given = fields.values.find(std::string(key.info.name));
    if (key.info.offered || given == fields.values.end()) continue;
    if (!keys::is_default(key, given->second)) problem.not_offered.insert(*given);
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
