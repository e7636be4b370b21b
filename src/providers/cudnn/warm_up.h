// Loading a graph's kernels before they are needed.
#pragma once

#include "providers/cudnn/graph.h"

namespace longspan::cudnn {

/// Kernels are loaded at their first launch, which a capturing stream does not allow: this captures
/// one into a graph that is thrown away. Nothing runs. Does nothing where memory for the workspace
/// is short; then the first run must not be captured.
void warm_up(const Graph& graph);

}  // namespace longspan::cudnn
