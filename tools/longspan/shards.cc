#include "shards.h"

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace longspan::tool {
namespace {

Tensor shard_of(const Tensor& whole, const Problem& problem, const char* name, const Shard& shard,
                const std::vector<int64_t>& indices) {
  Tensor tensor = shard_tensor(problem, tensor_spec(problem, name), shard);
  scatter_rows(whole.view, tensor.view, indices);
  poison_padding(tensor, indices, token_rows(problem, tensor_spec(problem, name).side));
  return tensor;
}

/// A table and an order of elements each: nothing says that keys and values share them.
void put_in_pages(ShardInputs& shard, int64_t page, uint64_t seed) {
  ShardInputs::Owned& owned = shard.owned;
  owned.k_pages = make_pages(std::exchange(owned.k, {}), page, PageLayout::kTokenHead, seed);
  owned.v_pages = make_pages(std::exchange(owned.v, {}), page, PageLayout::kHeadToken, seed + 1);
  shard.k = owned.k_pages.view;
  shard.v = owned.v_pages.view;
}

Tensor poisoned_bias(const Inputs& inputs) {
  Tensor bias = side_tensor(inputs.problem, "bias");
  std::memcpy(bias.memory.data(), inputs.bias.memory.data(), inputs.bias.memory.size());
  fill_unread_bias(inputs.problem, bias, std::numeric_limits<double>::quiet_NaN());
  return bias;
}

}  // namespace

ShardInputs shard_inputs(const Inputs& inputs, const Partition& partition, int rank) {
  const Problem& problem = inputs.problem;
  const std::vector<int64_t> q = partition.q_indices(problem, rank);
  const std::vector<int64_t> k = partition.k_indices(problem, rank);
  ShardInputs shard;
  ShardInputs::Owned& owned = shard.owned;
  owned.q = shard_of(inputs.q, problem, "q", partition.q(rank), q);
  owned.k = shard_of(inputs.k, problem, "k", partition.k(rank), k);
  owned.v = shard_of(inputs.v, problem, "v", partition.k(rank), k);
  if (inputs.dout.view.data != nullptr) {
    owned.dout = shard_of(inputs.dout, problem, "dout", partition.q(rank), q);
  }
  shard.q = owned.q.view;
  shard.k = owned.k.view;
  shard.v = owned.v.view;
  shard.dout = owned.dout.view;
  shard.side = side_operands(inputs);
  if (problem.page != 0) {
    put_in_pages(shard, problem.page, inputs.seed + 2 * static_cast<uint64_t>(rank));
  }
  if (inputs.bias.memory.size() > 0) {
    owned.bias = poisoned_bias(inputs);
    shard.side.bias = owned.bias.view;
  }
  return shard;
}

}  // namespace longspan::tool
