// Parameter lists that the binder knows, and how an entry's own list is matched with one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/status.h"
#include "providers/prepared/signature.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

/// What a slot is given at every call.
struct Given {
  enum class What : uint8_t {
    kNone,
    kNones,
    kNumbers,
    kOperand,
    kStrides,
    kScale,
    kScaleLog2,
    kInverseScale,
    kOne,
    kLeft,
    kRight,
    kSizes,
    kTokensQ,
    kStream,
    kStep,  // not known before the manifest's step
  };
  What what = What::kNone;
  Name name = Name::kQ;              // of kOperand and kStrides
  std::array<int64_t, 3> numbers{};  // of kNumbers

  bool operator==(const Given&) const = default;
};

/// "q", "q.strides", "0,0", "scale", ...; unsupported when it is none of these.
Result<Given> parse_given(std::string_view text);

struct KnownSlot {
  std::string name;
  std::string kind;
  bool optional = false;  // may be None
  Given given;
};

struct KnownList {
  std::string name;
  size_t count = 0;  // of slots, as lists.txt says it
  std::vector<KnownSlot> slots;
};

/// All lists, as lists.txt has them.
std::span<const KnownList> known_lists();
/// Null when there is none of this name.
const KnownList* known_list(std::string_view name);

struct BoundSlot {
  Slot slot;
  Given given;
};

/// Pairs slots by place, name and kind. unsupported names the first slot that is unknown, missing,
/// of another kind, or switched on although the list says that it is off.
Result<std::vector<BoundSlot>> match(const KnownList& list, std::span<const Slot> slots);

}  // namespace longspan::prepared
