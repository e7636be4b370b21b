#include "providers/prepared/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "providers/prepared/errors.h"
#include "providers/prepared/lists_text.h"

namespace longspan::prepared {
namespace {

using What = Given::What;

constexpr std::array<std::pair<std::string_view, What>, 12> kWords = {{
    {"none", What::kNone},
    {"nones", What::kNones},
    {"scale", What::kScale},
    {"scale_log2", What::kScaleLog2},
    {"inverse_scale", What::kInverseScale},
    {"one", What::kOne},
    {"left", What::kLeft},
    {"right", What::kRight},
    {"sizes", What::kSizes},
    {"tokens_q", What::kTokensQ},
    {"stream", What::kStream},
    {"step", What::kStep},
}};

bool parse_numbers(std::string_view text, Given& given) {
  given.what = What::kNumbers;
  for (int64_t& number : given.numbers) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return true;
    if (text[0] != ',') return false;
    text.remove_prefix(1);
  }
  return false;
}

/// Lines that say nothing known are left out: a list then has fewer slots than it says.
class Reader {
 public:
  std::vector<KnownList> read(const char* text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line[0] != '#') add(line);
    }
    return std::move(lists_);
  }

 private:
  void add(const std::string& line) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "list") {
      lists_.push_back({.name = second, .count = std::strtoul(third.c_str(), nullptr, 10)});
    } else if (first == "include") {
      include(second);
    } else if (const Result<Given> given = parse_given(third); given.ok()) {
      const bool optional = second.ends_with('?');
      if (optional) second.pop_back();
      lists_.back().slots.push_back({first, second, optional, *given});
    }
  }
  void include(const std::string& name) {
    const auto found = std::ranges::find(lists_, name, &KnownList::name);
    if (found == lists_.end()) return;
    const std::vector<KnownSlot> slots = found->slots;
    lists_.back().slots.insert(lists_.back().slots.end(), slots.begin(), slots.end());
  }

  std::vector<KnownList> lists_;
};

Error differs(const KnownList& list, size_t place, std::string what) {
  return refused(fmt::format("slot {} of a {} entry: {}", place, list.name, std::move(what)));
}

Status fits(const KnownList& list, size_t place, const Slot& slot) {
  if (place >= list.slots.size()) {
    return differs(list, place,
                   fmt::format("unknown slot {}, {} are known", slot.name, list.slots.size()));
  }
  const KnownSlot& known = list.slots[place];
  if (slot.name != known.name) {
    return differs(list, place, fmt::format("{} stands where {} is known", slot.name, known.name));
  }
  if (slot.kind == known.kind || (known.optional && slot.kind == "none")) return {};
  if (known.kind == "none") {
    return differs(
        list, place,
        fmt::format("{} is switched on ({}), only None is supported", slot.name, slot.kind));
  }
  return differs(list, place,
                 fmt::format("{} is a {}, known is a {}", slot.name, slot.kind, known.kind));
}

}  // namespace

Result<Given> parse_given(std::string_view text) {
  const auto word = std::ranges::find(kWords, text, [](const auto& w) { return w.first; });
  if (word != kWords.end()) return Given{.what = word->second};
  constexpr std::string_view kStrides = ".strides";
  const bool strides = text.ends_with(kStrides);
  const std::string_view operand = strides ? text.substr(0, text.size() - kStrides.size()) : text;
  if (const std::optional<Name> name = parse_name(operand)) {
    return Given{.what = strides ? What::kStrides : What::kOperand, .name = *name};
  }
  if (Given given; parse_numbers(text, given)) return given;
  return refused(fmt::format("\"{}\" names nothing that a slot can be given", text));
}

std::span<const KnownList> known_lists() {
  static const std::vector<KnownList>* const lists =
      new std::vector<KnownList>(Reader().read(kListsText));
  return *lists;
}

const KnownList* known_list(std::string_view name) {
  const std::span<const KnownList> lists = known_lists();
  const auto found = std::ranges::find(lists, name, &KnownList::name);
  return found == lists.end() ? nullptr : &*found;
}

Result<std::vector<BoundSlot>> match(const KnownList& list, std::span<const Slot> slots) {
  std::vector<BoundSlot> bound;
  for (size_t i = 0; i < slots.size(); ++i) {
    LONGSPAN_CHECK_OK(fits(list, i, slots[i]));
    const Given given = slots[i].kind == "none" ? Given() : list.slots[i].given;
    bound.push_back({slots[i], given});
  }
  if (slots.size() == list.slots.size()) return bound;
  return differs(list, slots.size(), fmt::format("{} is missing", list.slots[slots.size()].name));
}

}  // namespace longspan::prepared
