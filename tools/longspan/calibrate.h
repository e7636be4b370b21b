// longspan bench --calibrate: a routing table from the times of providers on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "longspan/routing_table.h"
#include "outcome.h"

namespace longspan::tool {

/// Problem texts of a list, a line each; empty lines and those that begin with # are none.
std::vector<std::string> case_lines(std::string_view text);

/// The list that comes with the tool, most wanted first.
std::vector<std::string> standard_cases();

/// Times every case of the list until the budget is spent and writes the table. Cases that could
/// not be timed are told and left out.
Outcome calibrate_command(const Arguments& arguments);

}  // namespace longspan::tool
