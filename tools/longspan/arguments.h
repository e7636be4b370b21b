// The command line, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "longspan/engine.h"

namespace longspan::tool {

inline constexpr int kMostRunRanks = 1024;

/// Flags after parsing; those of other commands keep their defaults.
struct Arguments {
  std::string command;  // run, bench, explain, schedule, simulate, list, support
  std::string problem;
  std::string input;
  std::string output;
  std::string json;       // a path, "-", or empty
  std::string plan;       // a path, or empty
  std::string save_plan;  // likewise
  std::string plot;
  std::string rates;
  std::string routing_table;
  std::string communicator = "threads";
  std::string device = "cpu";  // or "cuda", "cuda:1", ...
  std::string prepared;        // folder; empty: no prepared kernels
  std::string cudnn;           // file or directory; empty: where the loader finds it
  std::string check = "fp64";
  std::string format = "markdown";
  std::optional<int> ranks;
  std::optional<int> nodes;
  DirectionOptions forward;
  DirectionOptions backward;
  std::string partition = "auto";
  int head_slices = 0;
  int64_t score_bytes = 0;
  bool no_pull = false;
  std::string promise;  // or empty
  std::string guards = "report";
  std::string output_fill = "elide";
  std::optional<uint64_t> seed;
  int repeat = 1;
  double deadline = 60;  // seconds
  int threads = 0;
  int fail_rank = -1;
  Direction direction = Direction::kForward;
  int rank = 0;
  double warm_seconds = 3;
  int warmup = 5;
  int iterations = 50;
  bool graph = false;
  bool serve = false;
  std::string calibrate;          // a path, or empty
  std::string cases;              // likewise
  std::vector<std::string> arms;  // names of providers; empty: all but references
  double budget = 600;            // seconds
  bool all_ranks = false;
  bool verbose = false;

  int rank_count() const { return ranks.value_or(1); }
  int node_count() const { return nodes.value_or(1); }
};

/// Text to print instead of running: help or the version.
struct Information {
  std::string text;
};

using Parsed = std::variant<Arguments, Information>;

/// invalid_argument names the flag, the value and what is allowed.
Result<Parsed> parse_arguments(const std::vector<std::string>& words);

/// Value of a flag in words that need not parse: "--name value" or "--name=value"; else empty.
std::string raw_flag(const std::vector<std::string>& words, const std::string& name);

}  // namespace longspan::tool
