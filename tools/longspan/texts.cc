#include "texts.h"

#include <fmt/format.h>

#include "longspan/problem.h"

namespace longspan::tool {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 pass; 1 a check failed; 2 bad usage, bad input or declined; 3 internal error "
    "or\n"
    "lost peer.\n";

constexpr const char* kSimulateExamples =
    "Costs every strategy that offers the problem, without running it: seconds, bytes and memory "
    "of\n"
    "the slowest rank. Up to 64 ranks are costed together; beyond that an evenly spread sample of\n"
    "ranks, the first and the last among them, each with its peers assumed to be as far as "
    "itself.\n"
    "\n"
    "Rates (--rates FILE) are JSON; absent ones keep the H200's:\n"
    "  {{\"forward_flops\": 600e12, \"backward_flops\": 550e12, \"memory_bytes\": 4e12,\n"
    "   \"node_bytes\": 330e9, \"network_bytes\": 50e9, \"node_latency\": 11e-6,\n"
    "   \"network_latency\": 20e-6, \"launch_seconds\": 5e-6}}\n"
    "\n"
    "Examples:\n"
    "  longspan simulate --ranks 8 \\\n"
    "    --problem \"dtype=bf16 heads=32/8 dim=128 lengths=131072 mask=causal\"\n"
    "  longspan simulate --ranks 1024 --nodes 128 \\\n"
    "    --problem \"dtype=bf16 heads=32/8 dim=128 lengths=8388608 mask=causal\"\n";

}  // namespace

std::string problem_keys_text() {
  std::string text =
      "Keys of a problem text: space-separated key=value in any order; * = must be given (--input\n"
      "states dtype, heads, dim and lengths itself).\n";
  for (const KeyInfo& key : problem_keys()) {
    const char mark = key.standard == "required" ? '*' : ' ';
    text += fmt::format("  {} {:<13} {}\n", mark, key.name, key.meaning);
    text += fmt::format("    {:<13} allowed: {}{}\n", "", key.allowed,
                        mark == '*' ? "" : fmt::format("; default: {}", key.standard));
  }
  return text;
}

std::string overview_text() {
  return fmt::format(
      "Start here:\n"
      "  longspan run --ranks 4 --problem \"dtype=f32 heads=4/2 dim=64 lengths=1000 mask=causal\"\n"
      "    computes attention forward and backward over 4 ranks and checks every element against\n"
      "    float64. See 'longspan run --help' for all flags, files and problem keys.\n"
      "\n{}",
      kExitCodes);
}

std::string run_examples() {
  return fmt::format(
      "Examples:\n"
      "  longspan run --ranks 4 --problem \"dtype=f32 heads=4/2 dim=64 lengths=1000 mask=causal\"\n"
      "  longspan run --ranks 3 --forward ring --backward all_to_all --provider require:cpu/tiled "
      "\\\n"
      "    --problem \"dtype=bf16 heads=8/2 dim=128 lengths=700,0,45 mask=causal\" --output "
      "out.safetensors\n"
      "  longspan run --ranks 8 --nodes 2 --forward hybrid --input out.safetensors --json -\n"
      "  longspan run --ranks 2 --problem \"dtype=bf16 heads=8/2 dim=64 lengths=900 \\\n"
      "    mask=causal window=128,0 softcap=50 sink=learnable dropout=0.1 max_logit=true\"\n"
      "  longspan run --plan plan.json     # of longspan explain --save-plan plan.json\n"
      "  longspan run --backward none --problem \"dtype=bf16 heads=8/2 dim=64 lengths=1 "
      "kv_lengths=900 page=16\"\n"
      "  mpirun -n 2 longspan run --communicator mpi --input out.safetensors\n"
      "\n"
      "Files are safetensors. Inputs: q, k, v, maybe dout, maybe cu_seqlens_q, cu_seqlens_k and\n"
      "..._padded; shapes [tokens, heads, dim] (thd), [batch, seq, heads, dim] (bshd) or [seq, "
      "batch,\n"
      "heads, dim] (sbhd). Maybe sink and alibi_slopes [heads], bias [batch or 1, heads or 1, sq, "
      "skv];\n"
      "their keys follow from them. dtype, heads, dims and lengths come from the tensors, other "
      "keys\n"
      "from the file's metadata 'problem', then from --problem; a key that contradicts the tensors "
      "is\n"
      "an error.\n"
      "What a file does not hold is drawn N(0,1) in float64 from the seed and rounded once.\n"
      "\n{}\n{}",
      kExitCodes, problem_keys_text());
}

std::string bench_examples() {
  return fmt::format(
      "Times one arm: warms up, then queues iterations of forward and backward without waiting in\n"
      "between. Reports device time of each iteration (the slowest rank's), host time of each "
      "call,\n"
      "wall time, with --graph the same replayed, and the float64 check. With --serve it answers "
      "the\n"
      "lines 'warm SECONDS', 'round WARMUP ITERATIONS', 'graph WARMUP ITERATIONS', 'check' and "
      "'end'\n"
      "with a line of JSON each, so that several arms can take turns (bench/run.py).\n"
      "\n"
      "Examples:\n"
      "  longspan bench --device cuda --graph \\\n"
      "    --problem \"dtype=bf16 heads=32/8 dim=128 lengths=8192 mask=causal\"\n"
      "  longspan bench --ranks 2 --warm 0.1 --iterations 5 --json - \\\n"
      "    --problem \"dtype=f32 heads=4/2 dim=64 lengths=512 mask=causal\"\n"
      "\n{}\n{}",
      kExitCodes, problem_keys_text());
}

std::string explain_examples() {
  return fmt::format(
      "Says what run would do and why: strategies, providers and partition with reasons, all\n"
      "declines, buffers saved for backward, workspace, bytes sent and estimated cost. Runs "
      "nothing.\n"
      "\n"
      "Examples:\n"
      "  longspan explain --ranks 4 --problem \"dtype=f32 heads=4/2 dim=64 lengths=1000 "
      "mask=causal\"\n"
      "  longspan explain --ranks 4 --forward ring --provider off:cpu/tiled --json - \\\n"
      "    --problem \"dtype=f16 heads=4/2 dim=64 lengths=1000\"\n"
      "\n{}\n{}",
      kExitCodes, problem_keys_text());
}

std::string schedule_examples() {
  return fmt::format(
      "Prints the steps of one rank (or all), proves the schedules of all ranks, and draws them.\n"
      "\n"
      "Examples:\n"
      "  longspan schedule --ranks 4 --forward ring --rank 1 \\\n"
      "    --problem \"dtype=f32 heads=4/2 dim=64 lengths=1000 mask=causal\"\n"
      "  longspan schedule --ranks 8 --nodes 2 --direction backward --plot lanes.svg \\\n"
      "    --problem \"dtype=bf16 heads=32/8 dim=128 lengths=65536 mask=causal\"\n"
      "\n{}\n{}",
      kExitCodes, problem_keys_text());
}

std::string simulate_examples() {
  return fmt::format("{}\n{}\n{}", fmt::format(fmt::runtime(kSimulateExamples)), kExitCodes,
                     problem_keys_text());
}

}  // namespace longspan::tool
