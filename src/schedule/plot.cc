#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "schedule/work.h"

namespace longspan {
namespace {

constexpr double kLeft = 150;    // pixels
constexpr double kWidth = 1000;  // of the time axis
constexpr double kTop = 76;
constexpr double kLaneHeight = 16;
constexpr double kRankHeight = 44;
constexpr int kKinds = static_cast<int>(StepKind::kPull) + 1;

std::string_view colour(StepKind kind) {
  switch (kind) {
    case StepKind::kAttend: return "#2b6cb0";
    case StepKind::kAttendBackward: return "#2c5282";
    case StepKind::kDelta: return "#63b3ed";
    case StepKind::kSendRecv: return "#dd6b20";
    case StepKind::kAllGather: return "#d53f8c";
    case StepKind::kReduceScatter: return "#97266d";
    case StepKind::kAllToAll: return "#805ad5";
    case StepKind::kPack: return "#38a169";
    case StepKind::kUnpack: return "#9ae6b4";
    case StepKind::kAccumulate: return "#b7791f";
    case StepKind::kMaximum: return "#b7791f";
    case StepKind::kSink:
    case StepKind::kSinkGradient: return "#38a169";
    case StepKind::kFill: return "#a0aec0";
    case StepKind::kLend: return "#9ae6b4";
    case StepKind::kPull: return "#d53f8c";
  }
  return "#000000";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

struct Unit {
  double seconds;
  std::string_view name;
};

Unit unit_of(double seconds) {
  if (seconds >= 1) return {1, "s"};
  if (seconds >= 1e-3) return {1e-3, "ms"};
  return {1e-6, "us"};
}

/// 1, 2 or 5 times a power of ten, so that about ten marks fit.
double mark_distance(double total) {
  const double rough = total / 10;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

struct Axis {
  double total = 0;  // seconds over the whole width

  double x(double seconds) const { return kLeft + kWidth * (total > 0 ? seconds / total : 0); }
};

std::string axis_lines(const Axis& axis, double bottom) {
  if (axis.total <= 0) return "";
  const Unit unit = unit_of(axis.total);
  const double distance = mark_distance(axis.total);
  std::string svg;
  for (int i = 0; i * distance <= axis.total * (1 + 1e-9); ++i) {
    const double x = axis.x(i * distance);
    svg += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" "
        "stroke=\"#e2e8f0\"/>\n",
        x, kTop - 6, bottom);
    svg += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{:.6g} {}</text>\n", x,
                       bottom + 16, i * distance / unit.seconds, unit.name);
  }
  return svg;
}

std::string legend(std::span<const Schedule> schedules) {
  std::array<bool, kKinds> used{};
  for (const Schedule& schedule : schedules) {
    for (const Step& step : schedule.steps) used[static_cast<size_t>(step.kind)] = true;
  }
  std::string svg;
  double x = kLeft;
  for (int i = 0; i < kKinds; ++i) {
    if (!used[static_cast<size_t>(i)]) continue;
    const auto kind = static_cast<StepKind>(i);
    svg += fmt::format("<rect x=\"{}\" y=\"42\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                       colour(kind));
    svg += fmt::format("<text x=\"{}\" y=\"52\">{}</text>\n", x + 16, name(kind));
    x += 34 + 7.0 * static_cast<double>(name(kind).size());
  }
  return svg;
}

std::string tooltip(const Schedule& schedule, size_t index, const Span& span) {
  const Step& step = schedule.steps[index];
  const Unit unit = unit_of(span.end - span.begin);
  std::string text =
      fmt::format("rank {}, step {}: {}, {:.4g} {}", schedule.rank, index, name(step.kind),
                  (span.end - span.begin) / unit.seconds, unit.name);
  size_t tiles = 0;
  for (const Part& part : step.parts) tiles += part.tiles.size();
  if (tiles > 0) text += fmt::format(", {} tiles, {:.4g} FLOP", tiles, flops(schedule, step));
  for (const Message& message : step.messages) {
    const bool send = message.kind == TransferKind::kSend;
    text += fmt::format("\n{} {}: {} bytes", send ? "to" : "from", message.peer, message.bytes);
  }
  const int64_t bytes = bytes_touched(schedule, step);
  if (bytes > 0) text += fmt::format(", {} bytes read and written", bytes);
  return escaped(text);
}

std::string rank_lanes(const Schedule& schedule, const Cost& cost, const Axis& axis, double top) {
  std::string svg = fmt::format("<text x=\"10\" y=\"{}\" font-weight=\"bold\">rank {}</text>\n",
                                top + kLaneHeight + 5, schedule.rank);
  for (const Lane lane : {Lane::kCompute, Lane::kTransfer}) {
    const double y = top + (lane == Lane::kCompute ? 0 : kLaneHeight + 2);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 12,
                       name(lane));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f7fafc\"/>\n",
                       kLeft, y, kWidth, kLaneHeight);
  }
  for (const Span& span : cost.spans) {
    const auto index = static_cast<size_t>(span.step);
    if (index >= schedule.steps.size() || span.end <= span.begin) continue;
    const Step& step = schedule.steps[index];
    const bool compute = step.lane == Lane::kCompute;
    // Transfers may overlap, so they let each other shine through.
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
        "fill-opacity=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.4\">"
        "<title>{}</title></rect>\n",
        axis.x(span.begin), top + (compute ? 0 : kLaneHeight + 2),
        std::max(0.3, axis.x(span.end) - axis.x(span.begin)), kLaneHeight, colour(step.kind),
        compute ? 1.0 : 0.7, tooltip(schedule, index, span));
  }
  return svg;
}

}  // namespace

std::string plot(std::span<const Schedule> schedules, std::span<const Cost> costs) {
  const size_t ranks = std::min(schedules.size(), costs.size());
  Axis axis;
  for (size_t i = 0; i < ranks; ++i) axis.total = std::max(axis.total, costs[i].seconds);
  const double bottom = kTop + kRankHeight * static_cast<double>(ranks);
  const double width = kLeft + kWidth + 50;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\" "
      "fill=\"#1a202c\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, bottom + 30);
  if (ranks > 0) {
    const Unit unit = unit_of(axis.total);
    svg +=
        fmt::format("<text x=\"10\" y=\"24\" font-size=\"15\">{} {}, {} ranks: {:.4g} {}</text>\n",
                    escaped(schedules[0].strategy), name(schedules[0].direction), ranks,
                    axis.total / unit.seconds, unit.name);
  }
  svg += legend(schedules.first(ranks));
  svg += axis_lines(axis, bottom);
  for (size_t i = 0; i < ranks; ++i) {
    svg += rank_lanes(schedules[i], costs[i], axis, kTop + kRankHeight * static_cast<double>(i));
  }
  return svg + "</svg>\n";
}

}  // namespace longspan
