// Longer texts of --help and list.
#pragma once

#include <string>

namespace longspan::tool {

std::string overview_text();  // after the list of commands
std::string run_examples();   // after the flags of run, and likewise for the others
std::string bench_examples();
std::string explain_examples();
std::string schedule_examples();
std::string simulate_examples();
std::string problem_keys_text();  // the table of keys of a problem text

}  // namespace longspan::tool
