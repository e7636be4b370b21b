// Attention in float64 as its definition reads: an oracle that shares no code with the library.
#pragma once

#include "inputs.h"
#include "reference.h"

namespace longspan::testkit {

/// Packed float64 tensors [rows, heads, dim] by two loops over every (query, key) pair; rows that
/// hold no token are 0 (LSE -inf). For problems of at most some 1e8 multiplications.
tool::Reference attend_by_definition(const tool::Inputs& inputs, bool forward_only = false);

/// The same with O, LSE and rowsum(dout * O) rounded to the accumulator type before gradients are
/// made of them: how near to the definition gradients can be that are made of what forward returns.
tool::Reference attend_with_rounded_statistics(const tool::Inputs& inputs);

/// What results are held against: the oracle where that takes well under a second, else the
/// provider cpu/reference, which the oracle is compared with on small problems.
Result<tool::Reference> make_reference(const tool::Inputs& inputs, const Device& device,
                                       bool forward_only = false);

}  // namespace longspan::testkit
