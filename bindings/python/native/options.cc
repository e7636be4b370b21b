#include "options.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "errors.h"
#include "longspan/routing_table.h"

namespace longspan::python {
namespace {

using tvm::ffi::Any;
using Setter = std::function<void(Options&, const Any&)>;

std::string text_of(const Any& value) { return value.cast<tvm::ffi::String>(); }

Routing routing_of(const Any& value) { return value_or_raise(parse_routing(text_of(value))); }

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> all = {
      {"forward", [](Options& o, const Any& v) { o.forward.strategy = text_of(v); }},
      {"backward", [](Options& o, const Any& v) { o.backward.strategy = text_of(v); }},
      {"forward_provider", [](Options& o, const Any& v) { o.forward.routing = routing_of(v); }},
      {"backward_provider", [](Options& o, const Any& v) { o.backward.routing = routing_of(v); }},
      {"partition", [](Options& o, const Any& v) { o.partition = text_of(v); }},
      {"head_slices",
       [](Options& o, const Any& v) { o.head_slices = static_cast<int>(v.cast<int64_t>()); }},
      {"score_bytes", [](Options& o, const Any& v) { o.score_bytes = v.cast<int64_t>(); }},
      {"pull", [](Options& o, const Any& v) { o.pull = v.cast<bool>(); }},
      {"require_fp32_partials",
       [](Options& o, const Any& v) { o.require_fp32_partials = v.cast<bool>(); }},
      {"promise",
       [](Options& o, const Any& v) {
         if (text_of(v).empty()) return;
         o.promises = {value_or_raise(parse_promise(text_of(v)))};
       }},
      {"guards",
       [](Options& o, const Any& v) { o.guards = value_or_raise(parse_guard_policy(text_of(v))); }},
      {"output_fill",
       [](Options& o, const Any& v) {
         o.output_fill = value_or_raise(parse_output_fill(text_of(v)));
       }},
      {"routing_table",
       [](Options& o, const Any& v) {
         if (text_of(v).empty()) return;
         o.routing_table =
             std::make_shared<const RoutingTable>(value_or_raise(RoutingTable::load(text_of(v))));
       }},
      {"deadline",
       [](Options& o, const Any& v) {
         o.deadline = std::chrono::milliseconds(static_cast<int64_t>(1000 * v.cast<double>()));
       }},
  };
  return all;
}

[[noreturn]] void unknown_device(const std::string& text) {
  raise({ErrorCode::kInvalidArgument,
         fmt::format("device is '{}'; it must be cpu, cpu:THREADS, cuda or cuda:ORDINAL", text),
         "python"});
}

}  // namespace

Options options_of(const OptionMap& values) {
  Options options;
  for (const auto& [key, value] : values) {
    const auto setter = setters().find(key);
    if (setter == setters().end()) {
      raise({ErrorCode::kInvalidArgument,
             fmt::format("unknown engine option '{}'", std::string(key)), "python"});
    }
    setter->second(options, value);
  }
  return options;
}

Device device_of(const std::string& text) {
  const size_t colon = text.find(':');
  int number = 0;
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, number);
    if (read.ec != std::errc() || read.ptr != end || number < 0) unknown_device(text);
  }
  const std::string kind = text.substr(0, colon);
  if (kind == "cpu") return cpu_device(number);
  if (kind == "cuda") return value_or_raise(cuda_device(number));
  unknown_device(text);
}

}  // namespace longspan::python
