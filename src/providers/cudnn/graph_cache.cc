#include "providers/cudnn/graph_cache.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/threads.h"
#include "cuda/runtime.h"
#include "providers/cudnn/warm_up.h"

namespace longspan::cudnn {
namespace {

constexpr size_t kMostGraphs = 256;
constexpr size_t kMostBuilders = 8;

using GraphPointer = std::shared_ptr<const Graph>;
using Order = std::list<std::pair<GraphKey, GraphPointer>>;  // most recent first

/// Never destroyed: at the end of a process the driver may be gone before the plans are.
struct Cache {
  std::mutex building;  // held while graphs are built: nobody builds one twice
  std::mutex mutex;     // of what follows
  Order order;
  std::unordered_map<GraphKey, Order::iterator, GraphKeyHash> index;
  int64_t built = 0;
};

Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

void keep(const GraphKey& key, GraphPointer graph) {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  c.order.emplace_front(key, std::move(graph));
  c.index[key] = c.order.begin();
  ++c.built;
  if (c.order.size() <= kMostGraphs) return;
  c.index.erase(c.order.back().first);
  c.order.pop_back();
}

/// A graph that is wanted, and what became of it.
struct Wanted {
  explicit Wanted(const GraphKey& wanted) : key(wanted) {}
  GraphKey key;
  GraphPointer graph;
  Status status;
};

void build(Wanted& wanted) {
  const cuda::DeviceScope scope(wanted.key.ordinal);
  Result<GraphPointer> graph = build_graph(wanted.key);
  if (!graph.ok()) {
    wanted.status = std::move(graph).error();
    return;
  }
  wanted.graph = std::move(graph).value();
  warm_up(*wanted.graph);
  keep(wanted.key, wanted.graph);
}

void build_all(std::vector<Wanted>& missing) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) build(missing[i]);
  };
  const size_t builders = std::clamp<size_t>(missing.size(), 1, kMostBuilders);
  std::vector<std::thread> others = start_threads(builders - 1, work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace

GraphPointer known_graph(const GraphKey& key) {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  const auto found = c.index.find(key);
  if (found == c.index.end()) return nullptr;
  c.order.splice(c.order.begin(), c.order, found->second);
  return found->second->second;
}

Result<std::vector<GraphPointer>> make_graphs(std::span<const GraphKey> keys) {
  const std::lock_guard lock(cache().building);
  std::unordered_map<GraphKey, GraphPointer, GraphKeyHash> graphs;
  std::vector<Wanted> missing;
  for (const GraphKey& key : keys) {
    const auto [place, fresh] = graphs.emplace(key, nullptr);
    if (!fresh) continue;
    place->second = known_graph(key);
    if (place->second == nullptr) missing.emplace_back(key);
  }
  build_all(missing);
  for (Wanted& wanted : missing) {
    LONGSPAN_CHECK_OK(wanted.status);
    graphs[wanted.key] = std::move(wanted.graph);
  }
  std::vector<GraphPointer> result;
  for (const GraphKey& key : keys) result.push_back(graphs[key]);
  return result;
}

int64_t graphs_built() {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  return c.built;
}

}  // namespace longspan::cudnn
