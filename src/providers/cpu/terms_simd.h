// Terms of scores on whole blocks, compiled for several instruction sets.
#pragma once

#include <array>
#include <cstdint>

namespace longspan::cpu {

/// Scores [rows][ld]: one side of the tile (queries or keys) along the rows, the other along the
/// lanes. Forward and backward run the same code on transposed blocks, so that the score of a pair
/// has the same bits in both. `lanes` is a multiple of kChunk.
template <class T>
struct LogitBlock {
  T* scores = nullptr;  // in: products of operands; out: logits
  int64_t ld = 0;       // of all blocks
  int64_t lanes = 0;
  int64_t rows = 0;
  T scale = 1;                   // product -> logit, or argument of tanh
  T softcap = 0;                 // 0: off
  T slope = 0;                   // 0: no ALiBi
  const T* row_place = nullptr;  // slope times the distance of two places is taken off
  const T* lane_place = nullptr;
  const T* bias = nullptr;  // added
  T* derivative = nullptr;  // out: derivative of the softcap
};

/// Factors of dropout: `factor` for pairs that are kept, 0 for others.
template <class T>
struct DropoutBlock {
  T* factors = nullptr;  // [rows][ld]
  int64_t ld = 0;
  int64_t lanes = 0;
  int64_t rows = 0;
  const uint32_t* row_token = nullptr;
  const uint32_t* lane_token = nullptr;
  bool lanes_are_queries = false;
  uint32_t sequence = 0;
  uint32_t head = 0;
  std::array<uint32_t, 2> key = {};
  uint64_t threshold = 0;  // Dropout::threshold
  T factor = 1;
};

template <class T>
struct TermsSimd {
  void (*logits)(const LogitBlock<T>& block);
  void (*dropout)(const DropoutBlock<T>& block);
};

/// The best table for this machine. T is float or double.
template <class T>
const TermsSimd<T>& terms_simd();

}  // namespace longspan::cpu
