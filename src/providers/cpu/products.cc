#include "providers/cpu/products.h"

#include <libxsmm.h>

#include <type_traits>

namespace longspan::cpu {
namespace {

template <class T>
auto compile(const ProductShape& s) {
  // libxsmm counts column-major: its A is ours, its leading dimensions are our rows.
  const int lda = static_cast<int>(s.lda);
  const int ldb = static_cast<int>(s.ldb);
  const int ldc = static_cast<int>(s.ldc);
  const int m = static_cast<int>(s.m);
  const int n = static_cast<int>(s.n);
  const int k = static_cast<int>(s.k);
  const int flags = s.transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const int prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
  const T alpha = 1;
  const T beta = s.adds ? 1 : 0;
  if constexpr (std::is_same_v<T, float>) {
    return libxsmm_smmdispatch(m, n, k, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
  } else {
    return libxsmm_dmmdispatch(m, n, k, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
  }
}

template <class T>
void multiply(const ProductShape& s, const T* a, const T* b, T* c) {
  const int64_t step_n = s.transposed ? 1 : s.ldb;
  const int64_t step_k = s.transposed ? s.ldb : 1;
  for (int64_t j = 0; j < s.n; ++j) {
    T* row = c + j * s.ldc;
    if (!s.adds) {
      for (int64_t i = 0; i < s.m; ++i) row[i] = 0;
    }
    for (int64_t l = 0; l < s.k; ++l) {
      const T factor = b[j * step_n + l * step_k];
      for (int64_t i = 0; i < s.m; ++i) row[i] += a[l * s.lda + i] * factor;
    }
  }
}

}  // namespace

template <class T>
Product<T>::Product(const ProductShape& shape) : kernel_(compile<T>(shape)), shape_(shape) {}

template <class T>
void Product<T>::operator()(const T* a, const T* b, T* c) const {
  if (kernel_ != nullptr) return kernel_(a, b, c);
  multiply(shape_, a, b, c);
}

template class Product<float>;
template class Product<double>;

}  // namespace longspan::cpu
