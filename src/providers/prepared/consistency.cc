#include "providers/prepared/consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "providers/prepared/errors.h"
#include "providers/prepared/layout.h"

namespace longspan::prepared {
namespace {

using What = Given::What;

class Check {
 public:
  Check(const Manifest& manifest, std::span<const BoundSlot> slots)
      : manifest_(manifest), serves_(manifest.serves), slots_(slots) {}

  Status entries() const {
    for (const EntrySpec& entry : manifest_.entries) {
      if (std::ranges::count(manifest_.entries, entry.role, &EntrySpec::role) > 1) {
        return refused(fmt::format("two entries are called {}", entry.role));
      }
      if (std::ranges::count(manifest_.steps, entry.role, &StepSpec::role) == 0) {
        return refused(fmt::format("no step runs entry {}", entry.role));
      }
    }
    return {};
  }

  Status features() const {
    const bool window = serves_.shape == Shape::kWindow;
    const bool backward = serves_.direction == Direction::kBackward;
    LONGSPAN_CHECK_OK(
        agree("packed rows", serves_.packed, "cumulative_q", gives(Name::kCumulativeQ)));
    LONGSPAN_CHECK_OK(
        agree("packed rows", serves_.packed, "cumulative_k", gives(Name::kCumulativeK)));
    LONGSPAN_CHECK_OK(agree("a window", window, "left", gives(What::kLeft)));
    LONGSPAN_CHECK_OK(agree("a window", window, "right", gives(What::kRight)));
    return agree("a deterministic backward", backward && serves_.deterministic, "dq_turns",
                 gives(Name::kDqTurns));
  }

  Status operands() const {
    using Names = std::initializer_list<Name>;
    const Names forward = {Name::kQ, Name::kK, Name::kV, Name::kO, Name::kLse};
    const Names backward = {Name::kQ,    Name::kK,  Name::kV,  Name::kLse,
                            Name::kDout, Name::kDq, Name::kDk, Name::kDv};
    for (const Name n : serves_.direction == Direction::kForward ? forward : backward) {
      if (!gives(n)) return refused(fmt::format("no step is given {}", name(n)));
    }
    return {};
  }

  Status buffers() const {
    for (const Buffer& b : manifest_.buffers) {
      if (std::ranges::count(manifest_.buffers, b.name, &Buffer::name) > 1) {
        return refused(fmt::format("two buffers are called {}", name(b.name)));
      }
      if (b.keys != of_keys(b.name) || b.turns != is_turns(b.name)) {
        return refused(fmt::format("buffer {} is of {} per {}, it should be of {} per {}",
                                   name(b.name), b.keys ? "k" : "q", b.turns ? "tile" : "row",
                                   of_keys(b.name) ? "k" : "q", is_turns(b.name) ? "tile" : "row"));
      }
      if (!b.cleared && is_added_to(b.name)) {
        return refused(
            fmt::format("buffer {} is added to, but nobody clears it before", name(b.name)));
      }
      const int64_t least = least_width(b.name);
      if (b.width < least) {
        return refused(fmt::format("buffer {} has width {}, at least {} is needed", name(b.name),
                                   b.width, least));
      }
    }
    return {};
  }

  /// What steps give is of their slots' kinds: engines take any whole number for a float.
  Status kinds() const {
    for (const BoundSlot& s : slots_) {
      if (is_taken(s.slot.kind, s.given.what)) continue;
      return refused(
          fmt::format("slot {} is a {}, which is not what it is given", s.slot.name, s.slot.kind));
    }
    return {};
  }

  Status tensors() const {
    for (const BoundSlot& s : slots_) {
      if (s.given.what != What::kOperand || s.slot.kind != "tensor") continue;
      const std::optional<Element> element = element_of(s.given.name);
      if (!element) {
        return refused(fmt::format("slot {} is given {}, which is no buffer of it", s.slot.name,
                                   name(s.given.name)));
      }
      if (s.slot.dtype == name(*element)) continue;
      return refused(fmt::format("slot {} takes {}, {} is {}", s.slot.name, s.slot.dtype,
                                 name(s.given.name), name(*element)));
    }
    return {};
  }

 private:
  bool gives(What what) const {
    return std::ranges::any_of(slots_, [&](const BoundSlot& s) { return s.given.what == what; });
  }
  bool gives(Name n) const {
    return std::ranges::any_of(slots_, [&](const BoundSlot& s) {
      return s.given.what == What::kOperand && s.given.name == n;
    });
  }
  /// Of the kinds that a step may have to fill. The others' lists say themselves what they are
  /// given.
  static bool is_taken(std::string_view kind, What what) {
    if (kind == "tensor") return what == What::kOperand;
    if (kind != "float32") return true;
    return what == What::kScale || what == What::kScaleLog2 || what == What::kInverseScale ||
           what == What::kOne;
  }
  static Status agree(std::string_view what, bool serves, std::string_view given, bool gives) {
    if (serves == gives) return {};
    return refused(serves
                       ? fmt::format("it serves {}, but no step is given {}", what, given)
                       : fmt::format("it does not serve {}, but a step is given {}", what, given));
  }
  static bool of_keys(Name n) {
    return n == Name::kDkSum || n == Name::kDvSum || n == Name::kDkTurns || n == Name::kDvTurns;
  }
  static bool is_turns(Name n) { return n >= Name::kDqTurns; }
  /// By entries that do not clear it themselves, as they do dq_sum.
  static bool is_added_to(Name n) { return n == Name::kDkSum || n == Name::kDvSum || is_turns(n); }
  /// Elements that a row of a buffer must hold.
  int64_t least_width(Name n) const {
    if (n == Name::kDqSum || n == Name::kDkSum) return serves_.dim;
    return n == Name::kDvSum ? serves_.dim_v : 1;
  }
  /// Nothing for a buffer that the manifest does not have.
  std::optional<Element> element_of(Name n) const {
    if (n >= Name::kDeltaRows) {
      const auto found = std::ranges::find(manifest_.buffers, n, &Buffer::name);
      if (found == manifest_.buffers.end()) return std::nullopt;
      return found->element;
    }
    if (n >= Name::kCumulativeQ) return Element::kI32;
    return n == Name::kLse ? Element::kF32 : prepared::element_of(serves_.dtype);
  }

  const Manifest& manifest_;
  const Serves& serves_;
  std::span<const BoundSlot> slots_;
};

}  // namespace

Status consistent(const Manifest& manifest, std::span<const BoundSlot> slots) {
  const Check check(manifest, slots);
  LONGSPAN_CHECK_OK(check.entries());
  LONGSPAN_CHECK_OK(check.features());
  LONGSPAN_CHECK_OK(check.kinds());
  LONGSPAN_CHECK_OK(check.operands());
  LONGSPAN_CHECK_OK(check.buffers());
  return check.tensors();
}

}  // namespace longspan::prepared
