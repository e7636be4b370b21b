#include "options.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "longspan/libraries.h"
#include "longspan/routing_table.h"
#include "text_file.h"

namespace longspan::tool {
namespace {

void to_standard_error(LogLevel level, std::string_view message) {
  fmt::print(stderr, "longspan: {}: {}\n", name(level), message);
}

/// Where nothing is, the automatic choice would go on without cuDNN.
Status use_cudnn_at(const std::string& path) {
  if (path.empty()) return {};
  std::error_code failed;
  if (std::filesystem::exists(path, failed)) return set_cudnn_path(path);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--cudnn '{}': there is no such file or directory; name that of "
                           "libcudnn.so.9",
                           path),
               "usage"};
}

}  // namespace

Result<Rates> make_rates(const Arguments& arguments) {
  if (arguments.rates.empty()) return Rates{};
  LONGSPAN_TRY(const std::string text, read_text_file("--rates", arguments.rates));
  auto rates = rates_from_json(text);
  if (rates.ok()) return rates;
  return Error{rates.error().code,
               fmt::format("--rates '{}': {}", arguments.rates, rates.error().message), "usage"};
}

Result<Options> make_options(const Arguments& arguments) {
  Options options;
  options.forward = arguments.forward;
  options.backward = arguments.backward;
  options.partition = arguments.partition;
  options.head_slices = arguments.head_slices;
  options.pull = !arguments.no_pull;
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(arguments.deadline * 1000));
  if (!arguments.promise.empty()) {
    LONGSPAN_TRY(options.promises.emplace_back(), parse_promise(arguments.promise));
  }
  LONGSPAN_TRY(options.guards, parse_guard_policy(arguments.guards));
  LONGSPAN_TRY(options.output_fill, parse_output_fill(arguments.output_fill));
  LONGSPAN_TRY(options.rates, make_rates(arguments));
  if (!arguments.routing_table.empty()) {
    LONGSPAN_TRY(RoutingTable table, RoutingTable::load(arguments.routing_table));
    options.routing_table = std::make_shared<const RoutingTable>(std::move(table));
  }
  options.plans = make_plan_cache();
  options.check_schedules = arguments.rank_count() <= kMostProvedRanks;
  if (arguments.verbose) options.log = to_standard_error;
  return options;
}

Result<std::vector<Device>> make_devices(const Arguments& arguments, int ranks, int threads) {
  const std::string& text = arguments.device;
  const auto count = static_cast<size_t>(ranks);
  LONGSPAN_CHECK_OK(use_cudnn_at(arguments.cudnn));
  if (!arguments.prepared.empty()) LONGSPAN_CHECK_OK(set_prepared_store(arguments.prepared));
  if (text == "cpu") return std::vector<Device>(count, cpu_device(threads));
  const Error usage{ErrorCode::kInvalidArgument,
                    fmt::format("--device {}: cpu, cuda or cuda:N is needed", text), "usage"};
  std::vector<Device> devices;
  if (text == "cuda") {
    LONGSPAN_TRY(const int gpus, cuda_device_count());
    for (int rank = 0; rank < ranks; ++rank) {
      LONGSPAN_TRY(devices.emplace_back(), cuda_device(gpus == 0 ? 0 : rank % gpus));
    }
    return devices;
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (text.rfind(kPrefix, 0) != 0) return usage;
  int ordinal = -1;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + kPrefix.size(), end, ordinal);
  if (parsed.ec != std::errc() || parsed.ptr != end) return usage;
  LONGSPAN_TRY(const Device device, cuda_device(ordinal));
  return std::vector<Device>(count, device);
}

Result<Device> described_device(const std::string& text) {
  if (text == "cpu") return cpu_device(1);
  if (text == "cuda") return Device{.name = "cuda", .ordinal = 0, .capability = 90};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--device {}: cpu or cuda is needed; no GPU is looked at", text),
               "usage"};
}

Result<Topology> make_topology(const Arguments& arguments) {
  if (arguments.node_count() > arguments.rank_count()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--nodes {}: there are only {} ranks; use at most one node per rank",
                             arguments.node_count(), arguments.rank_count()),
                 "usage"};
  }
  return Topology::blocks(arguments.rank_count(), arguments.node_count());
}

StrategyNames chosen_names(const Explanation& explanation) {
  return {
      std::string(explanation.forward.strategy->name),
      std::string(explanation.forward_only ? kNoStrategy : explanation.backward.strategy->name)};
}

}  // namespace longspan::tool
