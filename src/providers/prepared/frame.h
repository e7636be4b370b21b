// The arguments of one call of an entry, on the caller's stack.
#pragma once

#include <tvm/ffi/c_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "longspan/status.h"
#include "providers/prepared/lists.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

/// Most slots of an entry, those of them that are tensors or tuples, and what a tuple holds.
inline constexpr size_t kMostSlots = 40;
inline constexpr size_t kMostTensors = 16;
inline constexpr size_t kMostTuples = 12;
inline constexpr size_t kMostItems = 6;

/// Filled for one call; nothing is allocated. Entries may look at it until they return.
class Frame {
 public:
  /// invalid_argument names the slot: an operand that is missing or of another rank or type.
  Status fill(std::span<const BoundSlot> slots, std::span<const Given> given, const Values& values);

  const TVMFFIAny* arguments() const { return arguments_.data(); }
  int32_t count() const { return count_; }

 private:
  // What an array object of TVM-FFI is in memory, its items inside it.
  struct Tuple {
    TVMFFIObject header;
    TVMFFISeqCell cell;
    std::array<TVMFFIAny, kMostItems> items;
  };

  /// The next argument is what the slot is given.
  Status add(const BoundSlot& slot, const Given& given, const Values& values);
  Status add_tensor(const Slot& slot, Name name, const Values& values);
  void add(const TVMFFIAny& argument) { arguments_[static_cast<size_t>(count_++)] = argument; }
  TVMFFIAny tuple(std::span<const int64_t> numbers);
  TVMFFIAny nones(int64_t count);
  Tuple& next_tuple(int64_t size);

  std::array<TVMFFIAny, kMostSlots> arguments_;
  std::array<DLTensor, kMostTensors> tensors_;
  std::array<Tuple, kMostTuples> tuples_;
  size_t used_tensors_ = 0, used_tuples_ = 0;
  int32_t count_ = 0;
};

/// unsupported when the slots need more room than a frame has.
Status fits_frame(std::span<const BoundSlot> slots);

}  // namespace longspan::prepared
