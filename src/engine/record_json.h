// Plans as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace longspan {

/// The bytes of a plan with these fields: the checksum is set, which goes over all others.
std::string sealed(nlohmann::json plan);

}  // namespace longspan
