// Row operations of a schedule as device tables.
#pragma once

#include "engine/row_program.h"

namespace longspan {

/// unsupported when built without CUDA.
Result<std::shared_ptr<const RowProgram>> make_cuda_program(const Schedule& schedule,
                                                            const Device& device);

}  // namespace longspan
