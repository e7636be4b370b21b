// The flags of each command, as the parser needs them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "arguments.h"

namespace longspan::tool {

/// What the parser fills in before it is checked.
struct Raw {
  Arguments arguments;
  int64_t ranks = 1;
  int64_t nodes = 1;
  int64_t repeat = 1;
  int64_t head_slices = 0;
  int64_t threads = 0;
  int64_t rank = 0;
  int64_t fail_rank = -1;
  int64_t warmup = 5;
  int64_t iterations = 50;
  std::string seed;
  std::string direction = "forward";
  std::vector<std::string> providers;
};

/// Adds all commands; their flags write into `raw`, which must outlive `app`.
void add_commands(CLI::App& app, Raw& raw);
std::vector<std::string> command_names(CLI::App& app);

}  // namespace longspan::tool
