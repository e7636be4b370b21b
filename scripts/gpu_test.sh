#!/usr/bin/env bash
# The GPU lane: every test that needs a device. Nothing is skipped: what cannot run fails.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/gpu_test.sh [--no-build] [--sanitize TOOL]... [--out DIR]

Builds the tests of tests/gpu (preset gpu) and runs them on the GPUs of this machine, then checks
runs of the command line on one GPU with every strategy and several ranks against float64.

  --no-build        use build/gpu as it is (carried here from another machine)
  --sanitize TOOL   also run the tests under compute-sanitizer: memcheck, racecheck or synccheck
  --out DIR         keep logs and reports there (default build/gpu/report)
TEXT
}

build=1
tools=()
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

# Ranks that share a GPU need a hardware queue for each of their streams.
export CUDA_DEVICE_MAX_CONNECTIONS=32
failed=()

run() {  # name, command...
  local name=$1
  shift
  local began=$SECONDS
  if timeout 540 "$@" > "$out/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - began)) s)"
  else
    echo "FAILED  $name ($((SECONDS - began)) s)"
    tail -n 40 "$out/$name.log"
    failed+=("$name")
  fi
}

shopt -s nullglob
programs=(build/gpu/tests/gpu/*_test build/gpu/tests/gpu/peer/*_test)
[ ${#programs[@]} -gt 0 ] || { echo "gpu_test.sh: build/gpu has no GPU tests" >&2; exit 1; }
export NCCL_NVLS_ENABLE=0  # what the nccl communicator asks of its process
two_gpus=(build/gpu/tests/gpu/nccl/*_test)
if [ "$gpus" -gt 1 ]; then
  for program in "${two_gpus[@]}"; do
    run "$(basename "$program")" "$program" --gtest_brief=1
  done
else
  echo "not run: ${#two_gpus[@]} programs of nccl, which need two GPUs"
fi
for program in "${programs[@]}"; do
  name=$(basename "$program")
  run "$name" "$program" --gtest_brief=1
  for tool in "${tools[@]}"; do
    run "$name.$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" \
      --gtest_brief=1
  done
done

longspan=build/gpu/longspan
problem="dtype=f32 heads=6/2 dim=64 dim_v=48 lengths=300,0,77 mask=causal"
for ranks in 1 2 3 4 8; do
  for strategy in ring all_gather all_to_all hybrid; do
    run "run.$strategy.$ranks" "$longspan" run --device cuda:0 --ranks "$ranks" \
      --forward "$strategy" --backward "$strategy" --repeat 3 --problem "$problem"
  done
  run "run.head_parallel.$ranks" "$longspan" run --device cuda:0 --ranks "$ranks" \
    --forward ring --backward head_parallel --problem "$problem"
done
run "run.terms" "$longspan" run --device cuda:0 --ranks 3 --problem "dtype=f32 heads=4/2 dim=32 \
lengths=200,120 mask=causal window=60,0 softcap=20 alibi=default bias=1,h sink=learnable \
dropout=0.2 max_logit=true prefix=3,2"
run "run.pages" "$longspan" run --device cuda:0 --ranks 2 --backward none --problem "dtype=bf16 \
heads=8/2 dim=64 lengths=500,90 mask=causal page=16"
if [ "$gpus" -gt 1 ]; then
  run "run.two_gpus" "$longspan" run --device cuda --ranks 2 --repeat 3 --problem "$problem"
  for communicator in nccl composite; do
    for strategy in ring all_gather all_to_all hybrid; do
      run "run.$communicator.$strategy" "$longspan" run --device cuda --ranks 2 --nodes 2 \
        --communicator "$communicator" --forward "$strategy" --backward "$strategy" --repeat 3 \
        --problem "$problem"
    done
    run "run.$communicator.head_parallel" "$longspan" run --device cuda --ranks 2 --nodes 2 \
      --communicator "$communicator" --backward head_parallel --repeat 3 --problem "$problem"
  done
fi

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "PASS: all of the GPU lane"
