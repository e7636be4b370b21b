#include "double_store.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <fstream>
#include <stdexcept>
#include <vector>

#include "providers/prepared/sha256.h"

namespace longspan::prepared::testing {
namespace {

namespace fs = std::filesystem;

json fa4_manifest(const std::string& name, const char* direction, const char* mask) {
  return {
      {"format", kFormat},
      {"name", name},
      {"engine", "fa4"},
      {"architecture", "sm_90a"},
      {"versions",
       {{"flash-attn-4", "4.0.0b36"},
        {"nvidia-cutlass-dsl", "4.8.1"},
        {"apache-tvm-ffi", "0.1.15.post2"}}},
      {"library", {{"file", "double.so"}, {"sha256", *sha256_of_file(LONGSPAN_PREPARED_DOUBLE)}}},
      {"serves",
       {{"direction", direction},
        {"dtype", "bf16"},
        {"dim", 16},
        {"dim_v", 16},
        {"group", 2},
        {"mask", mask},
        {"layout", "dense"},
        {"deterministic", false}}},
      {"tile_q", 8},
      {"tile_k", 4},
      {"buffers", json::array()},
      {"entries", json::array()},
      {"steps", json::array()}};
}

json entry(const std::string& role, const std::string& symbol, const std::string& list,
           const char* signature) {
  return {{"role", role}, {"symbol", symbol}, {"list", list}, {"signature", signature}};
}

json step(const std::string& role, json given = json::object()) {
  return {{"role", role}, {"given", std::move(given)}};
}

json buffer(const char* name, const char* of, int width, const char* cleared_by) {
  return {{"name", name}, {"dtype", "float32"}, {"of", of},
          {"per", "row"}, {"width", width},     {"cleared_by", cleared_by}};
}

json turns(const char* name, const char* of, int width) {
  return {{"name", name},  {"dtype", "int32"}, {"of", of},
          {"per", "tile"}, {"width", width},   {"cleared_by", "caller"}};
}

}  // namespace

DoubleStore::DoubleStore() {
  std::string name = (fs::temp_directory_path() / "longspan_store_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
  fs::create_symlink(LONGSPAN_PREPARED_DOUBLE, fs::path(folder_) / "double.so");
  const json store = {{"format", kFormat}, {"tvm_ffi", LONGSPAN_TVM_FFI_LIBRARY}, {"runtime", ""}};
  write("store.json", store.dump());
}

DoubleStore::~DoubleStore() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void DoubleStore::add(json manifest, const std::string& file) const {
  manifest["checksum"] = checksum_of(manifest);
  const std::string name = file.empty() ? manifest.at("name").get<std::string>() + ".json" : file;
  write(name, manifest.dump());
}

void DoubleStore::write(const std::string& file, const std::string& text) const {
  std::ofstream(fs::path(folder_) / file) << text;
}

Result<std::shared_ptr<const Kernel>> DoubleStore::open() const {
  LONGSPAN_TRY(const std::unique_ptr<const Store> store, read());
  return store->kernel(store->manifests()[0]);
}

json forward_manifest(const std::string& name, const std::string& symbol, const char* mask,
                      const char* signature) {
  json manifest = fa4_manifest(name, "forward", mask);
  manifest["entries"].push_back(entry("main", symbol, "fa4.forward", signature));
  manifest["steps"].push_back(step("main"));
  return manifest;
}

json backward_manifest(const std::string& name, const char* mask, bool deterministic) {
  json manifest = fa4_manifest(name, "backward", mask);
  manifest["buffers"] = {buffer("delta_rows", "q", 1, "entry"), buffer("lse_log2", "q", 1, "entry"),
                         buffer("dq_sum", "q", 16, "entry"), buffer("dk_sum", "k", 16, "caller"),
                         buffer("dv_sum", "k", 16, "caller")};
  manifest["serves"]["deterministic"] = deterministic;
  json main = entry("main", "backward_causal", "fa4.backward", kBackward);
  if (deterministic) {
    main = entry("main", "backward_in_turns", "fa4.backward", kBackwardInTurns);
    for (json& b : std::vector<json>{turns("dq_turns", "q", 1), turns("dk_turns", "k", 2),
                                     turns("dv_turns", "k", 2)}) {
      manifest["buffers"].push_back(b);
    }
  }
  manifest["entries"] = {entry("pre", "backward_pre", "fa4.backward_pre", kBackwardPre), main,
                         entry("post", "backward_post", "fa4.backward_post", kBackwardPost)};
  manifest["steps"] = {step("pre"), step("main", {{"mdK", "dk_sum"}, {"mdV", "dv_sum"}}),
                       step("post", {{"mdQaccum", "dq_sum"}, {"mdQ", "dq"}, {"scale", "scale"}}),
                       step("post", {{"mdQaccum", "dk_sum"}, {"mdQ", "dk"}, {"scale", "scale"}}),
                       step("post", {{"mdQaccum", "dv_sum"}, {"mdQ", "dv"}, {"scale", "one"}})};
  return manifest;
}

json frost_manifest(const std::string& symbol, const std::string& list, const char* signature) {
  json manifest = fa4_manifest(symbol, "forward", "causal");
  manifest["engine"] = "frost";
  manifest["versions"].erase("flash-attn-4");
  manifest["versions"]["nvidia-cudnn-frontend"] = "1.32.0";
  json& serves = manifest["serves"];
  serves["dim"] = serves["dim_v"] = 512;
  serves.update(
      {{"heads_q", 4}, {"heads_kv", 2}, {"tokens_q", 256}, {"tokens_k", 256}, {"lengths", true}});
  manifest["entries"].push_back(entry("main", symbol, list, signature));
  manifest["steps"].push_back(step("main"));
  return manifest;
}

const Record& record() {
  static auto* const get = reinterpret_cast<Record* (*)()>(
      dlsym(dlopen(LONGSPAN_PREPARED_DOUBLE, RTLD_NOW | RTLD_LOCAL), "longspan_double_record"));
  return *get();
}

}  // namespace longspan::prepared::testing
