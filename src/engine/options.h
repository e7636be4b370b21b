// What an engine can be created with.
#pragma once

#include "longspan/engine.h"

namespace longspan {

/// invalid_argument names the option, its value and what is allowed. `communicator` may be null,
/// which is refused.
Status check_options(const Options& options, const Communicator* communicator,
                     const Device& device);

}  // namespace longspan
