// Stands for prepared objects: functions of TVM-FFI in C++ that compute on the host, as slowly and
// plainly as can be, or note what they were given.
#include "double.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/half.h"

namespace {

using longspan::prepared::testing::Record;
using longspan::prepared::testing::Seen;

Record g_record;

int fail(const char* kind, const std::string& message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message.c_str());
  return -1;
}

/// What compiled entries say when they are called with the wrong number of arguments.
int refuse(const char* signature, int count) {
  return fail("TypeError", "Expects " + std::to_string(count) + " parameters when calling: `func(" +
                               signature + ")`");
}

int parameters(const char* signature) {
  int count = 1, depth = 0;
  for (const char* c = signature; *c != 0; ++c) {
    if (*c == '[' || *c == '(') ++depth;
    if (*c == ']' || *c == ')') --depth;
    if (*c == ',' && depth == 0) ++count;
  }
  return count;
}

/// A tensor of bf16 or f32 on the host.
struct Array {
  const DLTensor* t;
  explicit Array(const TVMFFIAny& any) : t(static_cast<const DLTensor*>(any.v_ptr)) {}
  int64_t extent(int axis) const { return t->shape[axis]; }
  int64_t at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    const int64_t last = t->ndim == 4 ? d * t->strides[3] : 0;
    return a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + last;
  }
  double read(int64_t place) const {
    if (t->dtype.code == kDLBfloat)
      return longspan::bf16_to_float(static_cast<const uint16_t*>(t->data)[place]);
    return static_cast<const float*>(t->data)[place];
  }
  void write(int64_t place, double value) const {
    const auto rounded = static_cast<float>(value);
    if (t->dtype.code == kDLBfloat) {
      static_cast<uint16_t*>(t->data)[place] = longspan::float_to_bf16(rounded);
    } else {
      static_cast<float*>(t->data)[place] = rounded;
    }
  }
};

/// Keys [first, last) of query i.
struct Sight {
  int64_t left = -1, right = -1;  // negative: all keys on that side
  int64_t first(int64_t i, int64_t sq, int64_t sk) const {
    return left < 0 ? 0 : std::clamp<int64_t>(i + sk - sq - left, 0, sk);
  }
  int64_t last(int64_t i, int64_t sq, int64_t sk) const {
    return right < 0 ? sk : std::clamp<int64_t>(i + sk - sq + right + 1, 0, sk);
  }
};

double dot(const Array& a, int64_t x, const Array& b, int64_t y, int64_t n) {
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += a.read(x + e) * b.read(y + e);
  return sum;
}

int forward(const TVMFFIAny* a, Sight sight) {
  const Array q(a[0]), k(a[1]), v(a[2]), o(a[3]), lse(a[4]);
  const int64_t sq = q.extent(1), sk = k.extent(1), heads = q.extent(2);
  const int64_t group = heads / k.extent(2);
  for (int64_t b = 0; b < q.extent(0); ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < sq; ++i) {
        const int64_t first = sight.first(i, sq, sk), last = sight.last(i, sq, sk);
        std::vector<double> p;
        for (int64_t j = first; j < last; ++j) {
          p.push_back(a[5].v_float64 *
                      dot(q, q.at(b, i, h), k, k.at(b, j, h / group), q.extent(3)));
        }
        const double top = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - top);
        for (int64_t e = 0; e < v.extent(3); ++e) {
          double value = 0;
          for (size_t j = 0; j < p.size(); ++j) {
            value += p[j] / sum * v.read(v.at(b, first + int64_t(j), h / group, e));
          }
          o.write(o.at(b, i, h, e), value);
        }
        lse.write(lse.at(b, h, i), top + std::log(sum));
      }
    }
  }
  return 0;
}

int backward_pre(const TVMFFIAny* a) {
  const Array o(a[0]), dout(a[1]), delta(a[2]), lse(a[3]), log2(a[4]), dq(a[5]);
  for (int64_t b = 0; b < o.extent(0); ++b) {
    for (int64_t h = 0; h < o.extent(2); ++h) {
      for (int64_t x = 0; x < dq.extent(2); ++x) dq.write(dq.at(b, h, x), 0);
      for (int64_t i = 0; i < delta.extent(2); ++i) {
        const bool there = i < o.extent(1);
        const double sum = there ? dot(o, o.at(b, i, h), dout, dout.at(b, i, h), o.extent(3)) : 0;
        delta.write(delta.at(b, h, i), sum);
        log2.write(log2.at(b, h, i), there ? lse.read(lse.at(b, h, i)) * std::numbers::log2e : 0);
      }
    }
  }
  return 0;
}

/// Sums have the rows of a head one behind the other, without the factors of scale.
int backward(const TVMFFIAny* a, Sight sight) {
  const Array q(a[0]), k(a[1]), v(a[2]), dout(a[3]), log2(a[4]), delta(a[5]);
  const Array dq(a[6]), dk(a[7]), dv(a[8]);
  const int64_t sq = q.extent(1), sk = k.extent(1), dim = q.extent(3), dim_v = v.extent(3);
  const int64_t group = q.extent(2) / k.extent(2);
  for (int64_t b = 0; b < q.extent(0); ++b) {
    for (int64_t h = 0; h < q.extent(2); ++h) {
      for (int64_t i = 0; i < sq; ++i) {
        for (int64_t j = sight.first(i, sq, sk); j < sight.last(i, sq, sk); ++j) {
          const int64_t hk = h / group;
          const double score = a[9].v_float64 * dot(q, q.at(b, i, h), k, k.at(b, j, hk), dim);
          const double p = std::exp2(score * std::numbers::log2e - log2.read(log2.at(b, h, i)));
          const double ds = p * (dot(dout, dout.at(b, i, h), v, v.at(b, j, hk), dim_v) -
                                 delta.read(delta.at(b, h, i)));
          const auto add = [&](const Array& sum, int64_t head, int64_t x, double value) {
            const int64_t place = sum.at(b, head, x);
            sum.write(place, sum.read(place) + value);
          };
          for (int64_t e = 0; e < dim; ++e) {
            add(dq, h, i * dim + e, ds * k.read(k.at(b, j, hk, e)));
            add(dk, hk, j * dim + e, ds * q.read(q.at(b, i, h, e)));
          }
          for (int64_t e = 0; e < dim_v; ++e) {
            add(dv, hk, j * dim_v + e, p * dout.read(dout.at(b, i, h, e)));
          }
        }
      }
    }
  }
  return 0;
}

int backward_post(const TVMFFIAny* a) {
  const Array sum(a[0]), out(a[1]);
  for (int64_t b = 0; b < out.extent(0); ++b) {
    for (int64_t i = 0; i < out.extent(1); ++i) {
      for (int64_t h = 0; h < out.extent(2); ++h) {
        for (int64_t e = 0; e < out.extent(3); ++e) {
          out.write(out.at(b, i, h, e),
                    a[2].v_float64 * sum.read(sum.at(b, h, i * out.extent(3) + e)));
        }
      }
    }
  }
  return 0;
}

Seen seen(const TVMFFIAny& a) {
  Seen s{.type = a.type_index, .integer = a.v_int64, .number = a.v_float64};
  if (a.type_index == kTVMFFIDLTensorPtr) {
    const auto* const t = static_cast<const DLTensor*>(a.v_ptr);
    s.integer = reinterpret_cast<int64_t>(t->data);
    s.size = t->ndim;
    std::copy_n(t->shape, std::min(t->ndim, 6), s.items);
  }
  if (a.type_index == kTVMFFIArray) {
    const auto* const cell = reinterpret_cast<const TVMFFISeqCell*>(a.v_obj + 1);
    s.size = cell->size;
    const auto* const items = static_cast<const TVMFFIAny*>(cell->data);
    for (int64_t i = 0; i < std::min<int64_t>(cell->size, 6); ++i) s.items[i] = items[i].v_int64;
  }
  return s;
}

int record(const TVMFFIAny* arguments, int32_t count) {
  for (int32_t i = 0; i < count; ++i) g_record.arguments[i] = seen(arguments[i]);
  g_record.count = count;
  g_record.stream = TVMFFIEnvGetStream(kDLCUDA, 0);
  ++g_record.calls;
  return 0;
}

int raise(const TVMFFIAny*) { return fail("RuntimeError", "the device is on fire"); }

}  // namespace

using namespace longspan::prepared::testing;  // NOLINT: names of signatures

extern "C" Record* longspan_double_record() { return &g_record; }

#define ENTRY(NAME, SIGNATURE, BODY)                                                         \
  extern "C" int __tvm_ffi_##NAME(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) { \
    if (count != parameters(SIGNATURE)) return refuse(SIGNATURE, parameters(SIGNATURE));     \
    return BODY;                                                                             \
  }

ENTRY(full, kForwardFull, forward(args, {}))
ENTRY(causal, kForwardFull, forward(args, {-1, 0}))
ENTRY(window, kForwardWindow, forward(args, {args[11].v_int64, args[12].v_int64}))
ENTRY(backward_pre, kBackwardPre, backward_pre(args))
ENTRY(backward_causal, kBackward, backward(args, {-1, 0}))
ENTRY(backward_in_turns, kBackwardInTurns, record(args, count))
ENTRY(backward_post, kBackwardPost, backward_post(args))
ENTRY(records, kForwardFull, record(args, count))
ENTRY(records_packed, kForwardPacked, record(args, count))
ENTRY(records_window, kForwardWindow, record(args, count))
ENTRY(frost23, kFrost23, record(args, count))
ENTRY(frost27, kFrost27, record(args, count))
ENTRY(frost28, kFrost28, record(args, count))
ENTRY(frost_gated30, kFrostGated30, record(args, count))
ENTRY(frost_decode30, kFrostDecode30, record(args, count))
ENTRY(frost31, kFrost31, record(args, count))
ENTRY(frost37, kFrost37, record(args, count))
ENTRY(frost38, kFrost38, record(args, count))
ENTRY(frost_fp8, kFrostFp8, record(args, count))
ENTRY(fails, kForwardFull, raise(args))
