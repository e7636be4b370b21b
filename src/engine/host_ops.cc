#include "engine/host_ops.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace longspan {
namespace {

/// Enough rows a piece that waking a thread pays.
constexpr int64_t kBytesAPiece = 64 << 10;

std::byte* element(const TensorView& view, int64_t row, int64_t head) {
  return static_cast<std::byte*>(view.data) + view.offset(row, head) * size_of(view.dtype);
}

/// Calls body(first, last) for pieces of [0, rows).
template <class Body>
void for_rows(Workers& workers, int64_t rows, int64_t row_bytes, Body&& body) {
  const int64_t piece = std::max<int64_t>(1, kBytesAPiece / std::max<int64_t>(1, row_bytes));
  workers.for_each((rows + piece - 1) / piece, [&](int64_t index, int) {
    body(index * piece, std::min(rows, (index + 1) * piece));
  });
}

int64_t row_bytes(const TensorView& view, int64_t heads) {
  return heads * view.dim * size_of(view.dtype);
}

bool heads_contiguous(const TensorView& view) { return view.stride_head == view.dim; }

using Convert = void (*)(const std::byte* src, std::byte* dst, int64_t count);

void to_f16(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const float*>(src);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_f16(from[i]);
}

void to_bf16(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const float*>(src);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_bf16(from[i]);
}

void from_f16(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  auto* to = reinterpret_cast<float*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] = f16_to_float(from[i]);
}

void from_bf16(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  auto* to = reinterpret_cast<float*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_float(from[i]);
}

template <int64_t kSize>
void same(const std::byte* src, std::byte* dst, int64_t count) {
  std::memcpy(dst, src, static_cast<size_t>(count * kSize));
}

Convert conversion(DType src, DType dst) {
  if (src != dst && dst == DType::kF32) return src == DType::kF16 ? from_f16 : from_bf16;
  if (src != dst) return dst == DType::kF16 ? to_f16 : to_bf16;
  return size_of(src) == 8 ? same<8> : size_of(src) == 4 ? same<4> : same<2>;
}

template <class T>
void raise(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const T*>(src);
  auto* to = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

template <class T>
void add(const std::byte* src, std::byte* dst, int64_t count) {
  const auto* from = reinterpret_cast<const T*>(src);
  auto* to = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

void apply_rows(Convert body, const TensorView& src, const TensorView& dst, const Copy& c,
                Workers& workers) {
  const bool whole_rows = heads_contiguous(src) && heads_contiguous(dst);
  for_rows(workers, c.rows, row_bytes(dst, c.heads), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t from = c.src_row + i * c.src_step;
      const int64_t to = c.dst_row + i * c.dst_step;
      if (whole_rows) {
        body(element(src, from, c.src_head), element(dst, to, c.dst_head), c.heads * dst.dim);
        continue;
      }
      for (int64_t h = 0; h < c.heads; ++h) {
        body(element(src, from, c.src_head + h), element(dst, to, c.dst_head + h), dst.dim);
      }
    }
  });
}

template <class T>
double load(const T* data, int64_t i) {
  return static_cast<double>(data[i]);
}
struct F16 {
  uint16_t bits;
  explicit operator double() const { return f16_to_float(bits); }
};
struct BF16 {
  uint16_t bits;
  explicit operator double() const { return bf16_to_float(bits); }
};

template <class A, class B>
double dot(const std::byte* a, const std::byte* b, int64_t count) {
  const auto* x = reinterpret_cast<const A*>(a);
  const auto* y = reinterpret_cast<const B*>(b);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += load(x, i) * load(y, i);
  return sum;
}

using Dot = double (*)(const std::byte*, const std::byte*, int64_t);

/// O is in accumulator type: as kept, or as returned where that is the same.
Dot dot_of(DType dout) {
  switch (dout) {
    case DType::kF64: return dot<double, double>;
    case DType::kF32: return dot<float, float>;
    case DType::kF16: return dot<float, F16>;
    case DType::kBF16: return dot<float, BF16>;
  }
  return nullptr;
}

void store(const TensorView& view, int64_t row, int64_t head, double value) {
  std::byte* to = element(view, row, head);
  if (view.dtype == DType::kF64) {
    *reinterpret_cast<double*>(to) = value;
  } else {
    *reinterpret_cast<float*>(to) = static_cast<float>(value);
  }
}

}  // namespace

void copy_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers) {
  apply_rows(conversion(src.dtype, dst.dtype), src, dst, copy, workers);
}

void add_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers) {
  apply_rows(dst.dtype == DType::kF64 ? add<double> : add<float>, src, dst, copy, workers);
}

void max_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers) {
  apply_rows(dst.dtype == DType::kF64 ? raise<double> : raise<float>, src, dst, copy, workers);
}

void delta_rows(const TensorView& o, const TensorView& dout, const TensorView& delta,
                const Copy& rows, Workers& workers) {
  const Dot body = dot_of(dout.dtype);
  for_rows(workers, rows.rows, row_bytes(o, rows.heads), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t h = 0; h < rows.heads; ++h) {
        const int64_t from = rows.src_row + i;
        store(delta, rows.dst_row + i, h, body(element(o, from, h), element(dout, from, h), o.dim));
      }
    }
  });
}

void fill_rows(const TensorView& dst, const Fill& fill, bool minus_infinity, Workers& workers) {
  const int64_t bytes = dst.dim * size_of(dst.dtype);
  for_rows(workers, fill.rows, row_bytes(dst, dst.heads), [&](int64_t first, int64_t last) {
    for (int64_t row = fill.row + first; row < fill.row + last; ++row) {
      for (int64_t h = 0; h < dst.heads; ++h) {
        if (minus_infinity) {
          store(dst, row, h, -std::numeric_limits<double>::infinity());
        } else {
          std::memset(element(dst, row, h), 0, static_cast<size_t>(bytes));
        }
      }
    }
  });
}

}  // namespace longspan
