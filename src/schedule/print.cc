#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "schedule/work.h"

namespace longspan {
namespace {

std::string amount(double value, std::string_view unit, double base,
                   const std::array<std::string_view, 5>& prefixes) {
  size_t i = 0;
  while (i + 1 < prefixes.size() && value >= base) {
    value /= base;
    ++i;
  }
  return i == 0 ? fmt::format("{:.0f} {}", value, unit)
                : fmt::format("{:.2f} {}{}", value, prefixes[i], unit);
}

std::string bytes_text(int64_t bytes) {
  return amount(static_cast<double>(bytes), "B", 1024, {"", "Ki", "Mi", "Gi", "Ti"});
}

std::string flops_text(double flops) {
  return amount(flops, "FLOP", 1000, {"", "k", "M", "G", "T"});
}

/// "3" or "1,2,3"; long lists are cut short.
std::string list(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(values.size(), kMost); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
  }
  if (values.size() > kMost) text += fmt::format(",+{}", values.size() - kMost);
  return text.empty() ? "-" : text;
}

std::string peers(const Schedule& schedule, const Step& step) {
  std::vector<int> to;
  std::vector<int> from;
  for (const Message& message : step.messages) {
    (message.kind == TransferKind::kSend ? to : from).push_back(message.peer);
  }
  for (const Copy& copy : step.copies) {
    const Buffer& source = schedule.buffers[static_cast<size_t>(copy.src)];
    if (source.space == Space::kPeer) from.push_back(source.peer);
  }
  to.insert(to.end(), step.readers.begin(), step.readers.end());
  if (to.empty() && from.empty()) return "-";
  if (from.empty()) return "to " + list(to);
  if (to.empty()) return "from " + list(from);
  if (list(to) == list(from)) return "with " + list(to);
  return fmt::format("to {} from {}", list(to), list(from));
}

std::string after(const Step& step) {
  std::vector<int> steps(step.after.begin(), step.after.end());
  for (const Part& part : step.parts) {
    if (part.after != kNone) steps.push_back(part.after);
  }
  return list(std::move(steps));
}

/// "compute", "compute/1": on another queue than the first.
std::string lane_text(const Step& step) {
  std::string text(name(step.lane));
  return step.queue == 0 ? text : text + fmt::format("/{}", step.queue);
}

std::string header(const Schedule& schedule) {
  int64_t operand_bytes = 0;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == Space::kOperand) operand_bytes += buffer.bytes();
  }
  const TileProblem& tiles = schedule.tiles;
  return fmt::format("{} {}, rank {} of {}: {} steps, {} tiles, {}, {} sent\n", schedule.strategy,
                     name(schedule.direction), schedule.rank, schedule.ranks, schedule.steps.size(),
                     schedule.tile_count(), flops_text(schedule.flops()),
                     bytes_text(schedule.bytes_sent())) +
         fmt::format("tiles of {} query and {} key heads, {}, dim {} and {}\n", tiles.heads_q,
                     tiles.heads_kv, name(tiles.dtype), tiles.dim_qk, tiles.dim_v) +
         fmt::format("memory: operands {}, saved {}, workspace {}\n", bytes_text(operand_bytes),
                     bytes_text(saved_bytes(schedule)), bytes_text(schedule.workspace_bytes));
}

std::string buffer_lines(const Schedule& schedule) {
  size_t width = 6;
  for (const Buffer& buffer : schedule.buffers) width = std::max(width, buffer.name.size());
  std::string text =
      fmt::format("\n{:<{}}  {:<9}  {:<9}  {:<5}  {:>9}  {:>11}  {:>4}  {:>12}  {:>11}\n", "buffer",
                  width, "space", "quantity", "type", "rows", "heads", "dim", "offset", "bytes");
  for (const Buffer& buffer : schedule.buffers) {
    const bool placed = buffer.space == Space::kWorkspace;
    text += fmt::format(
        "{:<{}}  {:<9}  {:<9}  {:<5}  {:>9}  {:>11}  {:>4}  {:>12}  {:>11}\n", buffer.name, width,
        name(buffer.space), name(buffer.quantity), name(buffer.dtype), buffer.rows,
        fmt::format("[{}, {})", buffer.head_begin, buffer.head_begin + buffer.heads), buffer.dim,
        placed ? fmt::format("{}", buffer.offset) : "-", bytes_text(buffer.bytes()));
  }
  return text;
}

}  // namespace

std::string print(const Schedule& schedule) {
  std::string text = header(schedule) + buffer_lines(schedule);
  text += fmt::format("\n{:>5}  {:<15}  {:<8}  {:<20}  {:>7}  {:>12}  {:>11}  {}\n", "step", "kind",
                      "lane", "peers", "tiles", "work", "bytes", "after");
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    size_t tiles = 0;
    for (const Part& part : step.parts) tiles += part.tiles.size();
    const bool carries = step.lane == Lane::kTransfer;
    const int64_t bytes = carries ? bytes_carried(step) + bytes_pulled(schedule, step)
                                  : bytes_touched(schedule, step);
    text += fmt::format("{:>5}  {:<15}  {:<8}  {:<20}  {:>7}  {:>12}  {:>11}  {}\n", i,
                        name(step.kind), lane_text(step), peers(schedule, step),
                        tiles > 0 ? fmt::format("{}", tiles) : "-",
                        tiles > 0 ? flops_text(flops(schedule, step)) : "-",
                        bytes > 0 ? bytes_text(bytes) : "-", after(step));
  }
  return text;
}

}  // namespace longspan
