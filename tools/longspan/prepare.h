// longspan prepare: a program of the Python package.
#pragma once

#include <string>
#include <vector>

namespace longspan::tool {

/// Replaces this process by the program longspan.prepare of python3 with these arguments. Returns
/// the exit code only where that is impossible, and says so on standard error.
int become_prepare(const std::vector<std::string>& arguments);

}  // namespace longspan::tool
