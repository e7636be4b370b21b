// Scores under ScoreTerms on the device, a pair at a time in float64: the steps and their order are
// those of providers/cpu/terms.h, callbacks apart.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "cuda/device_view.cuh"
#include "longspan/provider.h"
#include "providers/cuda/tile_table.h"

namespace longspan::cuda {

__device__ inline double wide(double value) { return value; }
__device__ inline double wide(float value) { return value; }
__device__ inline double wide(__half value) { return __half2float(value); }
__device__ inline double wide(__nv_bfloat16 value) { return __bfloat162float(value); }

/// A bias, or its gradient. Steps are 0 where an extent of 1 serves all.
struct BiasView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t by_sequence = 0, by_query = 0, by_head = 0;

  __device__ int64_t place(int64_t sequence, int64_t head, int64_t q, int64_t k) const {
    return sequence * by_sequence + q * by_query + head * by_head + k;
  }
  /// Whether all pairs of a key share an element.
  __device__ bool shared() const { return by_sequence == 0 && by_query == 0 && by_head == 0; }
  /// An element of f32 or f64 += value, rounded once.
  __device__ void add(int64_t place, double value) const {
    if (dtype == DType::kF64) {
      static_cast<double*>(data)[place] += value;
    } else {
      float& element = static_cast<float*>(data)[place];
      element = static_cast<float>(element + value);
    }
  }
};

inline BiasView bias_view(const TensorView& v) {
  return {.data = v.data,
          .dtype = v.dtype,
          .by_sequence = v.batch == 1 ? 0 : v.stride_batch,
          .by_query = v.seq == 1 ? 0 : v.stride_seq,
          .by_head = v.heads == 1 ? 0 : v.stride_head};
}

/// ScoreTerms as kernels see them.
struct TermValues {
  int64_t head_begin = 0;
  double softcap = 0;
  DeviceView slopes;
  BiasView bias;
  bool drops = false;
  uint32_t key0 = 0, key1 = 0;
  const uint32_t* key = nullptr;  // in their place
  uint64_t threshold = 0;
  double keep_factor = 1;
};

inline TermValues term_values(const ScoreTerms& terms) {
  const Dropout& dropout = terms.dropout;
  return {.head_begin = terms.head_begin,
          .softcap = terms.softcap,
          .slopes = device_view(terms.slopes),
          .bias = bias_view(terms.bias),
          .drops = dropout.probability != 0,
          .key0 = dropout.key()[0],
          .key1 = dropout.key()[1],
          .key = dropout.device_key,
          .threshold = dropout.threshold(),
          .keep_factor = dropout.keep_factor()};
}

/// The terms of one tile and one of the query heads that q holds. T: type of the inputs. Pairs are
/// query i and key j of the tile; a score of -inf hides its pair.
template <class T>
class PairTerms {
 public:
  __device__ PairTerms(const TermValues& terms, const TableTile& tile, int64_t head)
      : terms_(terms),
        tile_(tile),
        head_(terms.head_begin + head),
        slope_(terms.slopes.data == nullptr ? 0 : terms.slopes.load(0, head_, 0)) {}

  /// `product` is scale q.k.
  __device__ double score(double product, int64_t i, int64_t j) const {
    double score = product;
    if (terms_.softcap != 0) score = terms_.softcap * tanh(product / terms_.softcap);
    if (slope_ != 0) {
      const int64_t distance = query(i) + tile_.shift - key(j);
      score -= slope_ * static_cast<double>(distance < 0 ? -distance : distance);
    }
    if (terms_.bias.data == nullptr) return score;
    const int64_t place = terms_.bias.place(tile_.sequence, head_, query(i), key(j));
    return score + wide(static_cast<const T*>(terms_.bias.data)[place]);
  }

  /// Derivative of the score by `product`.
  __device__ double derivative(double product) const {
    if (terms_.softcap == 0) return 1;
    // 1 - tanh^2 without its cancellation where tanh is close to 1.
    const double e = exp(-2 * fabs(product / terms_.softcap));
    return 4 * e / ((1 + e) * (1 + e));
  }

  /// What dropout multiplies the pair's probability by.
  __device__ double keep(int64_t i, int64_t j) const {
    if (!terms_.drops) return 1;
    const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
    const bool given = terms_.key != nullptr;
    const PhiloxWords words =
        philox4x32(PhiloxWords{word(tile_.sequence), word(head_), word(query(i)), word(key(j))},
                   given ? terms_.key[0] : terms_.key0, given ? terms_.key[1] : terms_.key1);
    return words.x < terms_.threshold ? 0 : terms_.keep_factor;
  }

  /// Where the pair's element of a bias or of its gradient lies.
  __device__ int64_t place(const BiasView& bias, int64_t i, int64_t j) const {
    return bias.place(tile_.sequence, head_, query(i), key(j));
  }

 private:
  __device__ int64_t query(int64_t i) const { return tile_.q_begin + i * tile_.q_stride; }
  __device__ int64_t key(int64_t j) const { return tile_.k_begin + j * tile_.k_stride; }

  const TermValues& terms_;
  const TableTile& tile_;
  int64_t head_;  // of the problem's
  double slope_;
};

}  // namespace longspan::cuda
