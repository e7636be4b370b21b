#include <fmt/format.h>

#include <string>
#include <vector>

#include "commands.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"
#include "longspan/version.h"
#include "texts.h"

namespace longspan::tool {
namespace {

struct Item {
  std::string name;
  std::string summary;
};
using Items = std::vector<Item>;

Items provider_items() {
  Items items;
  for (const Provider* provider : providers()) {
    items.push_back({std::string(provider->name()), std::string(provider->summary())});
  }
  return items;
}

Items strategy_items() {
  Items items;
  for (const Strategy* strategy : strategies()) {
    items.push_back({std::string(strategy->name), std::string(strategy->summary)});
  }
  return items;
}

Items communicator_items() {
#ifdef LONGSPAN_TOOL_MPI
  const char* mpi = "ranks are processes of MPI_COMM_WORLD, started by mpirun";
#else
  const char* mpi = "not built in: configure with LONGSPAN_MPI=ON";
#endif
  const Result<std::string> nccl = nccl_description();
  return {{"threads", "ranks are threads of one process"},
          {"peer", "threads of one process on GPUs, which they may share"},
          {"nccl", fmt::format("ranks on GPUs of their own, many hosts: {}",
                               nccl.ok() ? *nccl : nccl.error().message)},
          {"composite", "one communicator inside each node, another between nodes"},
          {"mpi", mpi},
          {"callback", "a program's own process group, through the library alone"}};
}

Items partition_items() {
  return {{"contiguous", "each sequence in as many consecutive pieces as there are ranks"},
          {"zigzag", "rank r of P owns pieces r and 2P-1-r of 2P: equal causal work"},
          {"striped", "token t of a sequence belongs to rank t mod P"},
          {"balanced", "consecutive rows over all sequences, cut where the visible area is equal"}};
}

std::string section(const char* title, const Items& items) {
  std::string text = fmt::format("{}\n", title);
  for (const Item& item : items) text += fmt::format("  {:<14} {}\n", item.name, item.summary);
  return text + "\n";
}

Json items_json(const Items& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back({{"name", item.name}, {"summary", item.summary}});
  return list;
}

Json keys_json() {
  Json list = Json::array();
  for (const KeyInfo& key : problem_keys()) {
    list.push_back({{"name", key.name},
                    {"allowed", key.allowed},
                    {"default", key.standard},
                    {"meaning", key.meaning}});
  }
  return list;
}

}  // namespace

Outcome list_command(const Arguments&) {
  Outcome outcome;
  outcome.text = section("providers, best first", provider_items()) +
                 section("strategies", strategy_items()) +
                 section("communicators", communicator_items()) +
                 section("partitions", partition_items()) + problem_keys_text();
  outcome.json = {{"status", "pass"},
                  {"version", LONGSPAN_VERSION},
                  {"providers", items_json(provider_items())},
                  {"strategies", items_json(strategy_items())},
                  {"communicators", items_json(communicator_items())},
                  {"partitions", items_json(partition_items())},
                  {"problem_keys", keys_json()}};
  return outcome;
}

}  // namespace longspan::tool
