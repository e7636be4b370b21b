// The five products of a block of queries and a block of keys in the backward pass.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/provider.h"
#include "providers/cpu/products.h"

namespace longspan::cpu {

/// Tables are [level of queries][level of keys]. S is the type of dP.
template <class T, class S>
struct BackwardProducts {
  BackwardProducts(const TileProblem& problem, int64_t block) {
    const int64_t ld_qk = padded(problem.dim_qk);
    const int64_t ld_v = padded(problem.dim_v);
    const auto lanes = [=](int64_t dim, int64_t ld) {
      return [=](int64_t queries, int64_t keys) {
        return ProductShape{
            .m = keys, .n = queries, .k = dim, .lda = block, .ldb = ld, .ldc = block};
      };
    };
    const auto key_side = [=](int64_t ld) {
      return make_products<T>(block, [=](int64_t queries, int64_t keys) {
        return ProductShape{.m = ld,
                            .n = keys,
                            .k = queries,
                            .lda = ld,
                            .ldb = block,
                            .ldc = ld,
                            .transposed = true,
                            .adds = true};
      });
    };
    score = make_products<T>(block, lanes(problem.dim_qk, ld_qk));
    value = make_products<S>(block, lanes(problem.dim_v, ld_v));
    dk = key_side(ld_qk);
    dv = key_side(ld_v);
    for (const bool adds : {false, true}) {
      dq[adds] = make_products<T>(block, [=](int64_t queries, int64_t keys) {
        return ProductShape{.m = ld_qk,
                            .n = queries,
                            .k = keys,
                            .lda = ld_qk,
                            .ldb = block,
                            .ldc = ld_qk,
                            .adds = adds};
      });
    }
  }

  ProductTable<T> score;              // scores, one key per lane
  ProductTable<S> value;              // dP
  ProductTable<T> dk, dv;             // added
  std::array<ProductTable<T>, 2> dq;  // [adds]
};

}  // namespace longspan::cpu
