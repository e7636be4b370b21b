#include "engine/agreement.h"

#include <fmt/format.h>

#include "longspan/routing_table.h"
#include "longspan/version.h"

namespace longspan {
namespace {

/// FNV-1a, 64 bit: equal on every machine, unlike std::hash.
class Hash {
 public:
  void bytes(std::string_view data) {
    for (const char c : data) step(static_cast<unsigned char>(c));
  }
  void word(uint64_t value) {
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(value >> (8 * i)));
  }
  template <class... T>
  void words(T... values) {
    (word(static_cast<uint64_t>(values)), ...);
  }
  uint64_t value() const { return value_; }

 private:
  void step(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  uint64_t value_ = 0xcbf29ce484222325u;
};

void add(Hash& hash, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    hash.words(run.row, run.sequence, run.tokens.begin, run.tokens.end, run.tokens.stride,
               run.valid);
  }
}

void add(Hash& hash, const Step& step) {
  hash.words(step.kind, step.queue, step.q, step.o, step.lse, step.max_logit, step.dout, step.delta,
             step.dq);
  for (const StepId id : step.after) hash.word(static_cast<uint64_t>(id));
  for (const Part& part : step.parts) {
    hash.words(part.after, part.k, part.v, part.dk, part.dv);
    for (const PlacedTile& t : part.tiles) {
      hash.words(t.q_row, t.k_row, t.shift, t.tile.sequence, t.tile.q.begin, t.tile.q.end,
                 t.tile.q.stride, t.tile.k.begin, t.tile.k.end, t.tile.band.lo, t.tile.band.hi);
    }
  }
  for (const Copy& c : step.copies) {
    hash.words(c.src, c.dst, c.src_row, c.src_step, c.dst_row, c.dst_step, c.rows, c.src_head,
               c.dst_head, c.heads);
  }
  for (const Fill& f : step.fills) hash.words(f.buffer, f.row, f.rows);
  for (const Message& m : step.messages) {
    hash.words(m.kind, m.peer, m.tag, m.offset, m.bytes);
    for (const BufferId id : m.buffers) hash.word(static_cast<uint64_t>(id));
  }
  for (const int rank : step.readers) hash.word(static_cast<uint64_t>(rank));
}

/// Every cold call compares it; that of the library is written once.
std::string routing_text(const Options& options) {
  static const std::string measured = measured_routing_table()->to_json();
  return options.routing_table ? options.routing_table->to_json() : measured;
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  Hash hash;
  hash.bytes(bytes);
  return hash.value();
}

uint64_t hash_schedule(const Schedule& schedule) {
  Hash hash;
  hash.bytes(schedule.strategy);
  for (const Buffer& b : schedule.buffers) {
    hash.words(b.space, b.quantity, b.dtype, b.rows, b.heads, b.dim, b.offset, b.head_begin);
    if (b.space == Space::kPeer) hash.word(static_cast<uint64_t>(b.peer));
    add(hash, b.runs);
  }
  for (const Step& step : schedule.steps) add(hash, step);
  return hash.value();
}

std::vector<Fact> facts(const Problem& problem, const Options& options, const Topology& topology,
                        std::string_view plan) {
  std::vector<Fact> result;
  const auto fact = [&](std::string_view field, auto... words) {
    Hash hash;
    hash.words(words...);
    result.push_back({field, hash.value()});
  };
  const auto text = [&](std::string_view field, std::string_view value) {
    result.push_back({field, hash_bytes(value)});
  };
  text("version", LONGSPAN_VERSION);
  text("plan", plan);
  fact("dtype", problem.dtype);
  fact("heads", problem.heads_q, problem.heads_kv);
  fact("dim", problem.dim_qk);
  fact("dim_v", problem.dim_v);
  Hash lengths, padded;
  for (const Sequence& s : problem.lengths.sequences) {
    lengths.words(s.q_length, s.k_length);
    padded.words(s.q_extent, s.k_extent);
  }
  result.push_back({"lengths", lengths.value()});
  result.push_back({"padded", padded.value()});
  fact("tokens", problem.lengths.tokens_q, problem.lengths.tokens_k);
  fact("mask", problem.mask);
  fact("align", problem.align);
  fact("layout", problem.layout);
  text("scale", fmt::format("{}", problem.scale));
  fact("window", problem.window_left, problem.window_right);
  Hash prefix;
  for (const int64_t keys : problem.prefix) prefix.words(keys);
  result.push_back({"prefix", prefix.value()});
  fact("chunk", problem.chunk);
  text("softcap", fmt::format("{}", problem.softcap));
  fact("alibi", problem.alibi);
  fact("bias", problem.bias);
  fact("sink", problem.sink);
  text("dropout", fmt::format("{}", problem.dropout));
  fact("dropout_seed", problem.dropout_seed.value_or(0));
  fact("page", problem.page);
  fact("fp8", problem.fp8);
  fact("deterministic", problem.deterministic);
  fact("invariant", problem.invariant);
  fact("max_logit", problem.max_logit);
  fact("device_lengths", problem.device_lengths);
  text("modification", problem.modification ? "=" + problem.modification.functions->key : "");
  text("forward strategy", options.forward.strategy);
  text("backward strategy", options.backward.strategy);
  text("partition", options.partition);
  fact("head_slices", options.head_slices);
  fact("pull", options.pull);
  const auto routing = [](const Routing& r) {
    return fmt::format("{}:{}", static_cast<int>(r.mode), r.provider);
  };
  text("forward provider", routing(options.forward.routing));
  text("backward provider", routing(options.backward.routing));
  std::string promises(name(options.guards));
  for (const Promise promise : options.promises) promises += fmt::format(",{}", name(promise));
  text("promises", promises);
  fact("require_fp32_partials", options.require_fp32_partials);
  const Rates& rates = options.rates;
  text("rates", fmt::format("{} {} {} {} {} {} {} {}", rates.forward_flops, rates.backward_flops,
                            rates.memory_bytes, rates.node_bytes, rates.network_bytes,
                            rates.node_latency, rates.network_latency, rates.launch_seconds));
  text("routing table", routing_text(options));
  std::string nodes;
  for (const int node : topology.node_of_rank) nodes += fmt::format("{},", node);
  text("topology", nodes);
  return result;
}

Result<std::vector<uint64_t>> exchange_facts(Communicator& communicator,
                                             std::span<const Fact> facts, bool failed,
                                             std::chrono::milliseconds deadline) {
  std::vector<uint64_t> words = {failed ? uint64_t{1} : uint64_t{0}};
  for (const Fact& fact : facts) words.push_back(fact.hash);
  return exchange_words(communicator, words, deadline);
}

Status compare_facts(std::span<const Fact> facts, std::span<const uint64_t> all_ranks) {
  const size_t width = facts.size() + 1;
  const size_t ranks = all_ranks.size() / width;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (all_ranks[rank * width] == 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("rank {} could not prepare the problem; its own error says why", rank),
                 "agreement"};
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    for (size_t rank = 1; rank < ranks; ++rank) {
      if (all_ranks[rank * width + i + 1] == all_ranks[i + 1]) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("ranks disagree on {}: rank {} differs from rank 0; give every rank "
                               "the same problem and options",
                               facts[i].field, rank),
                   "agreement"};
    }
  }
  return {};
}

}  // namespace longspan
