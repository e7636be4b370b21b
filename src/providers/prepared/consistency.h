// Whether a build's kernels are what its manifest says that it serves.
#pragma once

#include <span>

#include "longspan/status.h"
#include "providers/prepared/lists.h"
#include "providers/prepared/manifest.h"

namespace longspan::prepared {

/// Checks what no entry does, before a build is offered. unsupported names what differs: a packed,
/// windowed or deterministic build without the slots of one, or the reverse; an input or a result
/// that no step is given; a tensor of another type; a buffer that is not there, stands twice or is
/// too narrow; an entry that stands twice or that no step runs. `slots`: those of all steps, with
/// what each is given.
Status consistent(const Manifest& manifest, std::span<const BoundSlot> slots);

}  // namespace longspan::prepared
