#!/usr/bin/env bash
# The GPU lane: every C++ test that needs a device. What needs a second GPU, or a store of prepared
# kernels, is named where there is none; all else fails where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/gpu_test.sh [--no-build] [--sanitize TOOL]... [--only REGEX] [--jobs N] [--out DIR]

Builds the tests of tests/gpu (preset gpu) and runs them on the GPUs of this machine, then checks
runs of the command line with every strategy and several ranks against float64. cuDNN and NCCL are
those of python3's wheels where it has them, else the loader's.

  --no-build        use build/gpu as it is (carried here from another machine)
  --sanitize TOOL   also run the tests under compute-sanitizer: memcheck, racecheck or synccheck
  --only REGEX      only what has a name that matches (names are those of the logs)
  --jobs N          so many at a time (default 4)
  --out DIR         keep logs and reports there (default build/gpu/report)
TEXT
}

build=1
tools=()
only=.
jobs=4
out=build/gpu/report
while [ $# -gt 0 ]; do
  case "$1" in
    --no-build) build=0; shift ;;
    --sanitize)
      case "${2:-}" in
        memcheck | racecheck | synccheck) tools+=("$2") ;;
        *)
          echo "gpu_test.sh: --sanitize takes memcheck, racecheck or synccheck" >&2
          exit 2 ;;
      esac
      shift 2 ;;
    --only) only=${2:?--only takes a regular expression}; shift 2 ;;
    --jobs)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] ||
        { echo "gpu_test.sh: --jobs takes a positive number, not '${2:-}'" >&2; exit 2; }
      jobs=$2; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu_test.sh: unknown argument '$1'; see scripts/gpu_test.sh --help" >&2; exit 2 ;;
  esac
done

gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU' || true)
[ "$gpus" -gt 0 ] || { echo "gpu_test.sh: no GPU here (nvidia-smi -L shows none)" >&2; exit 1; }
product=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
echo "== $gpus GPUs: $product"

if [ "$build" -eq 1 ]; then
  scripts/setup.sh
  # shellcheck source=scripts/build_env.sh
  . scripts/build_env.sh
  cmake --preset gpu
  cmake --build --preset gpu --parallel "$(nproc)" --target tests_gpu longspan_cli
fi
mkdir -p "$out"

# The wheels' libraries: a machine may have older ones beside them.
for wheel in cudnn nccl; do
  folder=$(python3 -c "import nvidia.$wheel as w; print(list(w.__path__)[0])" 2> /dev/null || true)
  [ -z "$folder" ] || LD_LIBRARY_PATH=$folder/lib:${LD_LIBRARY_PATH:-}
done
export LD_LIBRARY_PATH
# Ranks that share a GPU need a hardware queue for each of their streams.
export CUDA_DEVICE_MAX_CONNECTIONS=32
export NCCL_NVLS_ENABLE=0  # what the nccl communicator asks of its process
# shellcheck source=scripts/gpu_lane.sh
. scripts/gpu_lane.sh

run() {  # name, command...
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  part 540 SKIPPED "$@"
}

# A program of tests, the long ones in parts: processes on one GPU wait for each other. Sanitizers
# get all but what is there for its size.
run_tests() {  # program
  local name shards=1
  name=$(basename "$1")
  case "$name" in gpu_providers_test | gpu_cudnn_test | gpu_reference_test) shards=3 ;; esac
  for ((shard = 0; shard < shards; ++shard)); do
    local as_part=(env GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard)
    run "$name.$shard" "${as_part[@]}" "$1" --gtest_brief=1
    for tool in "${tools[@]}"; do
      run "$name.$shard.$tool" "${as_part[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
        --kernel-name-exclude kns=cudnn "$1" --gtest_brief=1 \
        --gtest_filter='-*RealSizes*:*LongSequences*:*AnyNumberOfRanks*'
    done
  done
}

shopt -s nullglob extglob
one_gpu=(build/gpu/tests/gpu/*_test build/gpu/tests/gpu/!(nccl|prepared)/!(*_rates)_test)
two_gpus=(build/gpu/tests/gpu/nccl/*_test)
if [ -f build/store/store.json ]; then
  one_gpu+=(build/gpu/tests/gpu/prepared/!(*_rates)_test)
else
  echo "not run: tests of prepared kernels, which need build/store (scripts/prepared_store.sh)"
fi
[ ${#one_gpu[@]} -gt 0 ] || { echo "gpu_test.sh: build/gpu has no GPU tests" >&2; exit 1; }
for program in "${one_gpu[@]}"; do run_tests "$program"; done
if [ "$gpus" -gt 1 ]; then
  for program in "${two_gpus[@]}"; do run_tests "$program"; done
else
  echo "not run: ${#two_gpus[@]} programs of nccl, which need two GPUs"
fi

longspan() {  # name, arguments of longspan run...
  run "run.$1" build/gpu/longspan run "${@:2}"
}
bf16="dtype=bf16 heads=16/8 dim=128 lengths=1500,700 mask=causal deterministic=true"
longspan ring.2 --device cuda:0 --ranks 2 --forward ring --backward ring --repeat 3 \
  --problem "$bf16"
longspan repeats.ranks --device cuda:0 --ranks 2 --repeat 1000 --problem "$bf16"
longspan repeats.cudnn --device cuda:0 --provider require:cudnn --repeat 1000 --problem "$bf16"
longspan repeats.hopper --device cuda:0 --provider require:hopper --repeat 1000 \
  --problem "${bf16/dim=128/dim=256}"
longspan terms --device cuda:0 --ranks 3 --problem "dtype=f32 heads=4/2 dim=32 lengths=200,120 \
mask=causal window=60,0 softcap=20 alibi=default bias=1,h sink=learnable dropout=0.2 \
max_logit=true prefix=3,2"
longspan pages --device cuda:0 --ranks 2 --backward none --problem "dtype=bf16 heads=8/2 dim=64 \
lengths=500,90 mask=causal page=16"
if [ -f build/store/store.json ]; then
  prepared=(--prepared build/store --provider require:prepared --problem)
  window="dtype=bf16 heads=4/2 dim=128 lengths=300,200 mask=causal window=64,0"
  heads="dtype=bf16 heads=8/4 dim=64 lengths=512 mask=causal"
  for ranks in 1 2 4; do
    for strategy in ring all_gather; do
      longspan "prepared.$strategy.$ranks" --device cuda:0 --ranks "$ranks" \
        --forward "$strategy" --backward "$strategy" "${prepared[@]}" "$window"
    done
    longspan "prepared.head_parallel.$ranks" --device cuda:0 --ranks "$ranks" \
      --backward head_parallel "${prepared[@]}" "$heads"
    longspan "prepared.frost.$ranks" --device cuda:0 --ranks "$ranks" --forward ring \
      --backward none "${prepared[@]}" "dtype=bf16 heads=16/8 dim=512 lengths=2000 mask=causal"
  done
fi
if [ "$gpus" -gt 1 ]; then
  for communicator in peer nccl composite; do
    for strategy in ring all_gather all_to_all hybrid; do
      for slices in 1 2; do
        longspan "$communicator.$strategy.$slices" --device cuda --ranks 2 --nodes 2 \
          --communicator "$communicator" --forward "$strategy" --backward "$strategy" \
          --head-slices "$slices" --repeat 3 --problem "$bf16"
      done
    done
    longspan "$communicator.head_parallel" --device cuda --ranks 2 --nodes 2 \
      --communicator "$communicator" --backward head_parallel --head-slices 4 --repeat 3 \
      --problem "$bf16"
    [ -f build/store/store.json ] || continue
    two=(--device cuda --ranks 2 --nodes 2 --communicator "$communicator" --repeat 3)
    for strategy in ring all_gather; do
      longspan "prepared.$communicator.$strategy" "${two[@]}" --forward "$strategy" \
        --backward "$strategy" "${prepared[@]}" "$window"
    done
    longspan "prepared.$communicator.head_parallel" "${two[@]}" --backward head_parallel \
      "${prepared[@]}" "$heads"
  done
fi
wait
tools=()  # times, which want the GPU for themselves
run_tests build/gpu/tests/gpu/hopper/gpu_hopper_rates_test
wait
if [ -f build/store/store.json ]; then
  run_tests build/gpu/tests/gpu/prepared/gpu_prepared_rates_test
fi
report_parts "GPU lane" 25
