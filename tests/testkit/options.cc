#include "testkit/options.h"

#include <algorithm>
#include <sstream>

namespace longspan::testkit {
namespace {

/// `values` repeated until every sequence has one.
std::string for_each_sequence(const std::string& values, const std::string& problem) {
  constexpr std::string_view kKey = "lengths=";
  const size_t begin = problem.find(" " + std::string(kKey)) + 1 + kKey.size();
  const std::string lengths = problem.substr(begin, problem.find(' ', begin) - begin);
  std::vector<std::string> given;
  std::stringstream stream(values);
  for (std::string value; std::getline(stream, value, ',');) given.push_back(value);
  std::string list;
  const auto sequences = static_cast<size_t>(1 + std::count(lengths.begin(), lengths.end(), ','));
  for (size_t i = 0; i < sequences; ++i) list += (i == 0 ? "" : ",") + given[i % given.size()];
  return list;
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"window", "0,0"},
      {"window", "1,7"},
      {"window", "6,-1"},
      {"window", "-1,3"},
      {"window", "500,500"},
      {"prefix", "1"},
      {"prefix", "0,9"},
      {"prefix", "500"},
      {"chunk", "1"},
      {"chunk", "7"},
      {"chunk", "500"},
      {"softcap", "0.8"},
      {"softcap", "30"},
      {"alibi", "default"},
      {"bias", "1,1"},
      {"bias", "b,1"},
      {"bias", "1,h"},
      {"bias", "b,h"},
      {"bias", "1,1,1,s"},
      {"sink", "off_by_one"},
      {"sink", "learnable"},
      {"dropout", "0.1"},
      {"dropout", "0.9"},
      {"max_logit", "true"},
      {"deterministic", "true"},
      {"modification", "bent"},
      {"modification", "tilted"},
      {"modification", "mesh"},
      {"modification", "cut"},
      {"modification", "all"},
  };
  return all;
}

const std::vector<Option>& refused_options() {
  static const std::vector<Option> all = {
      {"page", "1"},    {"page", "4"},         {"fp8", "delayed"},         {"fp8", "current"},
      {"fp8", "mxfp8"}, {"invariant", "true"}, {"device_lengths", "true"},
  };
  return all;
}

Case with_option(Case c, const Option& option) {
  if (option.key == "modification") {
    c.modification = option.value;
    return c;
  }
  const bool list = option.key == "prefix";
  c.problem +=
      " " + option.key + "=" + (list ? for_each_sequence(option.value, c.problem) : option.value);
  return c;
}

}  // namespace longspan::testkit
