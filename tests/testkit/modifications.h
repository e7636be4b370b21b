// Score and visibility callbacks of the tests, by name.
#pragma once

#include <string>
#include <vector>

#include "longspan/modification.h"

namespace longspan::testkit {

/// "bent" and "tilted" change scores, "mesh" hides pairs, "cut" hides some by a score of -inf,
/// "all" does everything.
const std::vector<std::string>& modification_names();

/// The callbacks of that name, which is their key; none for an empty name. Aborts on others.
ModificationRef modification_named(const std::string& name);

}  // namespace longspan::testkit
