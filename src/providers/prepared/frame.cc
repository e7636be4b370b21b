#include "providers/prepared/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "providers/prepared/errors.h"

namespace longspan::prepared {
namespace {

using What = Given::What;

TVMFFIAny any(int32_t type) {
  TVMFFIAny result{};
  result.type_index = type;
  return result;
}

TVMFFIAny any_int(int64_t value) {
  TVMFFIAny result = any(kTVMFFIInt);
  result.v_int64 = value;
  return result;
}

TVMFFIAny any_float(double value) {
  TVMFFIAny result = any(kTVMFFIFloat);
  result.v_float64 = value;
  return result;
}

TVMFFIAny any_pointer(void* value) {
  TVMFFIAny result = any(kTVMFFIOpaquePtr);
  result.v_ptr = value;
  return result;
}

/// Addresses of what is not given are 0.
TVMFFIAny any_address(const Slot& slot, void* data) {
  if (slot.kind == "int64" || data == nullptr) return any_int(reinterpret_cast<int64_t>(data));
  return any_pointer(data);
}

DLDataType type_of(Element element) {
  switch (element) {
    case Element::kF16: return {kDLFloat, 16, 1};
    case Element::kBF16: return {kDLBfloat, 16, 1};
    case Element::kF32: return {kDLFloat, 32, 1};
    case Element::kI32: return {kDLInt, 32, 1};
  }
  return {};
}

bool is_tuple(const BoundSlot& bound) { return bound.slot.items > 0; }

}  // namespace

Status fits_frame(std::span<const BoundSlot> slots) {
  const auto tensors = static_cast<size_t>(
      std::ranges::count_if(slots, [](const BoundSlot& s) { return s.slot.kind == "tensor"; }));
  const auto tuples = static_cast<size_t>(std::ranges::count_if(slots, is_tuple));
  for (const BoundSlot& s : slots) {
    if (s.slot.items <= static_cast<int64_t>(kMostItems)) continue;
    return refused(fmt::format("slot {} is a tuple of {}, more than {}", s.slot.name, s.slot.items,
                               kMostItems));
  }
  if (slots.size() <= kMostSlots && tensors <= kMostTensors && tuples <= kMostTuples) return {};
  return refused(fmt::format("{} slots, {} tensors, {} tuples: at most {}, {} and {} are supported",
                             slots.size(), tensors, tuples, kMostSlots, kMostTensors, kMostTuples));
}

Status Frame::fill(std::span<const BoundSlot> slots, std::span<const Given> given,
                   const Values& values) {
  used_tensors_ = used_tuples_ = 0;
  count_ = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    LONGSPAN_CHECK_OK(add(slots[i], given[i], values));
  }
  return {};
}

Status Frame::add(const BoundSlot& bound, const Given& given, const Values& values) {
  const Slot& slot = bound.slot;
  switch (given.what) {
    case What::kNone: add(any(kTVMFFINone)); break;
    case What::kNones: add(nones(slot.items)); break;
    case What::kNumbers:
      add(slot.items > 0 ? tuple(std::span(given.numbers).first(static_cast<size_t>(slot.items)))
                         : any_int(given.numbers[0]));
      break;
    case What::kOperand:
      if (slot.kind == "tensor") return add_tensor(slot, given.name, values);
      add(any_address(slot, values[given.name].data));
      break;
    case What::kStrides: add(tuple(std::span(values[given.name].strides).first<3>())); break;
    case What::kScale: add(any_float(values.scale)); break;
    case What::kScaleLog2: add(any_float(values.scale * std::numbers::log2e)); break;
    case What::kInverseScale: add(any_float(values.scale == 0 ? 1 : 1 / values.scale)); break;
    case What::kOne: add(any_float(1)); break;
    case What::kLeft: add(any_int(values.left)); break;
    case What::kRight: add(any_int(values.right)); break;
    case What::kSizes: add(tuple(values.sizes)); break;
    case What::kTokensQ: add(any_int(values.tokens_q)); break;
    case What::kStream: add(any_pointer(values.stream.handle)); break;
    case What::kStep: return invalid(fmt::format("slot {} is given nothing", slot.name));
  }
  return {};
}

Status Frame::add_tensor(const Slot& slot, Name operand_name, const Values& values) {
  const Operand& operand = values[operand_name];
  if (operand.data == nullptr) {
    return invalid(
        fmt::format("slot {} needs {}, which is not given", slot.name, name(operand_name)));
  }
  if (operand.rank != slot.rank || name(operand.element) != slot.dtype) {
    return invalid(fmt::format("slot {} takes {} of rank {}, {} is {} of rank {}", slot.name,
                               slot.dtype, slot.rank, name(operand_name), name(operand.element),
                               operand.rank));
  }
  DLTensor& t = tensors_[used_tensors_++];
  t = {.data = operand.data,
       .device = {kDLCUDA, values.ordinal},
       .ndim = operand.rank,
       .dtype = type_of(operand.element),
       .shape = const_cast<int64_t*>(operand.shape.data()),
       .strides = const_cast<int64_t*>(operand.strides.data()),
       .byte_offset = 0};
  TVMFFIAny result = any(kTVMFFIDLTensorPtr);
  result.v_ptr = &t;
  add(result);
  return {};
}

Frame::Tuple& Frame::next_tuple(int64_t size) {
  Tuple& t = tuples_[used_tuples_++];
  t.header = {};
  // Counted high enough that no release ever frees it.
  t.header.combined_ref_count = (uint64_t{1} << 32) | (uint64_t{1} << 30);
  t.header.type_index = kTVMFFIArray;
  t.cell = {.data = t.items.data(), .size = size, .capacity = size, .data_deleter = nullptr};
  return t;
}

TVMFFIAny Frame::tuple(std::span<const int64_t> numbers) {
  Tuple& t = next_tuple(static_cast<int64_t>(numbers.size()));
  std::ranges::transform(numbers, t.items.begin(), any_int);
  TVMFFIAny result = any(kTVMFFIArray);
  result.v_obj = &t.header;
  return result;
}

TVMFFIAny Frame::nones(int64_t count) {
  Tuple& t = next_tuple(count);
  std::ranges::fill(t.items, any(kTVMFFINone));
  TVMFFIAny result = any(kTVMFFIArray);
  result.v_obj = &t.header;
  return result;
}

}  // namespace longspan::prepared
