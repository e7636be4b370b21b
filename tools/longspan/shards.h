// One rank's part of the inputs.
#pragma once

#include "inputs.h"
#include "longspan/partition.h"
#include "pages.h"

namespace longspan::tool {

/// What a call must not read is NaN: rows without a token, bias of no pair, unused pages. Refers to
/// the inputs that it was made from.
struct ShardInputs {
  TensorView q, k, v, dout;
  SideOperands side;

  struct Owned {
    Tensor q, k, v, dout;
    PagePool k_pages, v_pages;  // of a paged problem, in place of k and v
    Tensor bias;                // where a part of it is never read
  } owned;
};

ShardInputs shard_inputs(const Inputs& inputs, const Partition& partition, int rank);

}  // namespace longspan::tool
