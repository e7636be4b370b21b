// The graphs of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "providers/cudnn/graph.h"

namespace longspan::cudnn {

/// The graphs of `keys`, in order. Builds what is missing, on several threads. Failures are not
/// kept: the next call tries again. The least recently used graphs leave when there are many; those
/// in use live on. Thread-safe.
Result<std::vector<std::shared_ptr<const Graph>>> make_graphs(std::span<const GraphKey> keys);

/// The graph of a key, or null when it has not been built.
std::shared_ptr<const Graph> known_graph(const GraphKey& key);

/// Since the process began.
int64_t graphs_built();

}  // namespace longspan::cudnn
