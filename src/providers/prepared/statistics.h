// Statistics between rows of all heads, [rows, heads], and heads of all rows, [batch, heads, rows].
#pragma once

#include <cstdint>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::prepared {

struct Statistics {
  const float* from = nullptr;
  float* to = nullptr;
  int64_t batch = 1;
  int64_t rows = 0;  // of a batch entry
  int64_t heads = 0;
};

/// Enqueue on `stream` of the current device.
Status rows_of_heads(const Statistics& statistics, Stream stream);  // to [rows, heads]
Status heads_of_rows(const Statistics& statistics, Stream stream);  // to [heads, rows]

}  // namespace longspan::prepared
