#include "file_lengths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <numeric>
#include <optional>

namespace longspan::tool {
namespace {

using List = std::vector<int64_t>;

Error fault(const SafetensorsFile& file, const std::string& message) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}': {}", file.path(), message), "input"};
}

/// The numbers of a key whose syntax was checked before.
std::optional<List> list(const ProblemFields& fields, const std::string& key) {
  const auto found = fields.values.find(key);
  if (found == fields.values.end()) return std::nullopt;
  List values;
  const char* at = found->second.data();
  const char* const end = at + found->second.size();
  while (at < end) {
    int64_t value = 0;
    at = std::from_chars(at, end, value).ptr + 1;  // past the comma
    values.push_back(value);
  }
  return values;
}

/// Numbers as they stand in a message: not all of a long list.
std::string some(const List& values) {
  constexpr size_t kMost = 8;
  if (values.size() <= kMost) return fmt::format("{}", fmt::join(values, ","));
  return fmt::format("{},... ({} numbers)", fmt::join(values.begin(), values.begin() + kMost, ","),
                     values.size());
}

int64_t sum(const List& values) {
  int64_t total = 0;
  for (const int64_t value : values) {
    if (__builtin_add_overflow(total, value, &total)) return INT64_MAX;
  }
  return total;
}

Status agree(const SafetensorsFile& file, const std::string& key, const std::optional<List>& given,
             const List& actual, const std::string& source) {
  if (!given || *given == actual) return {};
  return fault(
      file, fmt::format("{}={} contradicts {}, which has {}={}; remove the key or name the right "
                        "file",
                        key, some(*given), source, key, some(actual)));
}

/// Lengths and extents of one side.
struct Sizes {
  List lengths;
  List extents;
};

Status check_count(const SafetensorsFile& file, const FileSide& side, const List& lengths,
                   const std::string& source) {
  if (side.packed || static_cast<int64_t>(lengths.size()) == side.batch) return {};
  return fault(file, fmt::format("{} has {} sequences, but tensor '{}' has batch {}", source,
                                 lengths.size(), side.tensor, side.batch));
}

Result<Sizes> from_cumulative(const SafetensorsFile& file, const FileSide& side,
                              const ProblemFields& given) {
  LONGSPAN_TRY(const List cumulative, file.read_integers(side.cumulative));
  auto lengths = lengths_from_cumulative(cumulative, side.cumulative);
  if (!lengths.ok()) return fault(file, lengths.error().message);
  LONGSPAN_CHECK_OK(check_count(file, side, *lengths, side.cumulative));
  LONGSPAN_CHECK_OK(
      agree(file, side.lengths, list(given, side.lengths), *lengths, side.cumulative));
  Sizes sizes{*lengths, *lengths};
  const std::string padded_name = side.cumulative + "_padded";
  if (!side.packed) {
    sizes.extents.assign(lengths->size(), side.seq);
  } else if (const auto padded = list(given, side.padded); padded && !file.find(padded_name)) {
    sizes.extents = *padded;
  }
  if (file.find(padded_name) == nullptr) return sizes;
  LONGSPAN_TRY(const List padded, file.read_integers(padded_name));
  auto extents = lengths_from_cumulative(padded, padded_name);
  if (!extents.ok()) return fault(file, extents.error().message);
  if (extents->size() != lengths->size()) {
    return fault(file,
                 fmt::format("{} has {} sequences but {} has {}; both need one entry per sequence "
                             "and one more",
                             padded_name, extents->size(), side.cumulative, lengths->size()));
  }
  if (!side.packed && *extents != sizes.extents) {
    return fault(file, fmt::format("{} states extents {}, but tensor '{}' has {} rows a sequence",
                                   padded_name, some(*extents), side.tensor, side.seq));
  }
  sizes.extents = *extents;
  return sizes;
}

/// Without cu_seqlens_k, keys are as long as the queries that cu_seqlens_q describes.
bool keys_follow_queries(const SafetensorsFile& file, const FileSide& side) {
  return side.lengths == "kv_lengths" && file.find(side.cumulative) == nullptr &&
         file.find("cu_seqlens_q") != nullptr;
}

/// `resolved` holds the queries' sizes already when the side is that of the keys.
Result<Sizes> from_text(const SafetensorsFile& file, const FileSide& side,
                        const ProblemFields& given, const ProblemFields& resolved) {
  if (file.find(side.cumulative + "_padded") != nullptr) {
    return fault(file, fmt::format("{0}_padded needs {0} beside it", side.cumulative));
  }
  std::optional<List> lengths = list(given, side.lengths);
  // The text's own default: keys are as long as queries.
  if (!lengths && side.lengths == "kv_lengths") lengths = list(given, "lengths");
  std::optional<List> padded = list(given, side.padded);
  if (!lengths && keys_follow_queries(file, side)) {
    lengths = list(resolved, "lengths");
    if (side.packed && !padded) padded = list(resolved, "padded");
    if (!side.packed) padded = List(static_cast<size_t>(side.batch), side.seq);
  }
  if (!lengths) {
    const List whole(side.packed ? 1 : static_cast<size_t>(side.batch), side.seq);
    return Sizes{whole, side.packed && padded ? *padded : whole};
  }
  LONGSPAN_CHECK_OK(check_count(file, side, *lengths, side.lengths));
  const List extents = padded.value_or(*lengths);
  const List actual(lengths->size(), side.seq);
  if (side.packed || extents == actual) return Sizes{*lengths, extents};
  return fault(file, fmt::format("{0}={1} contradicts tensor '{3}', which has {4} rows a sequence; "
                                 "{2}={5} states that the rest is padding",
                                 side.lengths, some(*lengths), side.padded, side.tensor, side.seq,
                                 some(actual)));
}

Status check_extents(const SafetensorsFile& file, const FileSide& side, const Sizes& sizes) {
  if (sizes.extents.size() != sizes.lengths.size()) {
    return fault(file,
                 fmt::format("{}={} has {} entries but there are {} sequences", side.padded,
                             some(sizes.extents), sizes.extents.size(), sizes.lengths.size()));
  }
  for (size_t i = 0; i < sizes.lengths.size(); ++i) {
    if (sizes.extents[i] < sizes.lengths[i]) {
      return fault(
          file, fmt::format("sequence {} of '{}' has length {} but only {} rows; the extents must "
                            "be at least the lengths",
                            i, side.tensor, sizes.lengths[i], sizes.extents[i]));
    }
  }
  const int64_t needed = sum(sizes.extents);
  if (needed > side.rows()) {
    return fault(file,
                 fmt::format("the sequences ({}={}) need {} rows, tensor '{}' has only {}",
                             side.lengths, some(sizes.lengths), needed, side.tensor, side.rows()));
  }
  return {};
}

std::string text(const List& values) { return fmt::format("{}", fmt::join(values, ",")); }

}  // namespace

Result<ProblemFields> with_lengths(const SafetensorsFile& file, const FileSide& side,
                                   const ProblemFields& given, ProblemFields fields) {
  const bool cumulative = file.find(side.cumulative) != nullptr;
  LONGSPAN_TRY(const Sizes sizes, cumulative ? from_cumulative(file, side, given)
                                             : from_text(file, side, given, fields));
  LONGSPAN_CHECK_OK(check_extents(file, side, sizes));
  LONGSPAN_CHECK_OK(agree(file, side.padded, list(given, side.padded), sizes.extents,
                          fmt::format("tensor '{}'", side.tensor)));
  LONGSPAN_CHECK_OK(agree(file, side.tokens, list(given, side.tokens), {side.rows()},
                          fmt::format("tensor '{}'", side.tensor)));
  const bool stated = given.values.contains(side.lengths) || given.values.contains("lengths") ||
                      keys_follow_queries(file, side);
  if (!cumulative && stated && !given.values.contains(side.tokens) &&
      sum(sizes.extents) != side.rows()) {
    return fault(file,
                 fmt::format("{0}={1} claims {2} rows, tensor '{3}' has {4}; add {5}={4} when the "
                             "rest is unused",
                             side.lengths, some(sizes.lengths), sum(sizes.extents), side.tensor,
                             side.rows(), side.tokens));
  }
  fields.values[side.lengths] = text(sizes.lengths);
  fields.values[side.padded] = text(sizes.extents);
  fields.values[side.tokens] = fmt::format("{}", side.rows());
  return fields;
}

}  // namespace longspan::tool
