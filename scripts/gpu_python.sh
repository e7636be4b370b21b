#!/usr/bin/env bash
# The GPU lane of the Python package: its tests on one GPU and what its calls cost, with wheels that
# were built elsewhere. Nothing is fetched and nothing is skipped: what cannot run fails.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/gpu_python.sh --wheel DIR [--torch PYTHON] [--jax PYTHON] [--only REGEX] [--out DIR]

Installs the wheels of DIR (longspan, apache-tvm-ffi and what else is there) into a folder of their
own and runs tests/python/gpu and bench/python_overhead.py with it, all at a time.

  --wheel DIR      the wheels
  --torch PYTHON   the interpreter that has PyTorch and pytest (default python3)
  --jax PYTHON     the interpreter that has JAX and pytest (default: that of --torch)
  --only REGEX     only what has a name that matches (names are those of the logs)
  --out DIR        keep logs and rows there (default build/gpu_python)
TEXT
}

wheels=
torch=python3
jax=
only=.
out=build/gpu_python
while [ $# -gt 0 ]; do
  case "$1" in
    --wheel) wheels=${2:?--wheel takes a folder}; shift 2 ;;
    --torch) torch=${2:?--torch takes an interpreter}; shift 2 ;;
    --jax) jax=${2:?--jax takes an interpreter}; shift 2 ;;
    --only) only=${2:?--only takes a regular expression}; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu_python.sh: unknown argument '$1'; see scripts/gpu_python.sh --help" >&2; exit 2 ;;
  esac
done
jax=${jax:-$torch}
fail() { echo "gpu_python.sh: $1" >&2; exit "$2"; }
[ -n "$wheels" ] || fail "--wheel is missing: the folder of the wheels" 2
shopt -s nullglob
files=("$wheels"/*.whl)
[[ " ${files[*]}" == *longspan-* ]] || fail "$wheels has no wheel of longspan" 2
nvidia-smi -L 2> /dev/null | grep -q '^GPU' || fail "no GPU here (nvidia-smi -L shows none)" 1

mkdir -p "$out"
out=$(cd "$out" && pwd)
site=$out/site
rm -rf "$site" "$out"/*.jsonl
"$torch" -m pip --disable-pip-version-check --no-input install --quiet --no-index --no-deps \
  --target "$site" "${files[@]}"
export PYTHONPATH=$site PYTHONDONTWRITEBYTECODE=1
export CUDA_DEVICE_MAX_CONNECTIONS=32  # ranks that share a GPU need a queue for each stream
export XLA_PYTHON_CLIENT_PREALLOCATE=false

# The CUDA libraries that a framework brings: a machine may have older ones beside them.
libraries_of() {  # interpreter
  "$1" -c 'import nvidia.cudnn as c, nvidia.nccl as n
print(*(list(w.__path__)[0] + "/lib" for w in (c, n)), sep=":")' 2> /dev/null || true
}

declare -A libraries
libraries[$torch]=$(libraries_of "$torch")
libraries[$jax]=$(libraries_of "$jax")
# shellcheck source=scripts/gpu_lane.sh
. scripts/gpu_lane.sh

run() {  # name, interpreter, arguments...
  local name=$1 python=$2
  shift 2
  part 280 '[0-9] skipped' "$name" env -C tests/python/gpu \
    LD_LIBRARY_PATH="${libraries[$python]}:${LD_LIBRARY_PATH:-}" "$python" "$@"
}

tests=(-m pytest -q -ra --tb=short -p no:cacheprovider)
run torch "$torch" "${tests[@]}" test_torch_gpu.py
run modes "$torch" "${tests[@]}" test_torch_modes_gpu.py
run ranks "$torch" "${tests[@]}" test_ranks_gpu.py
run jax "$jax" "${tests[@]}" test_jax_gpu.py
run jax_axis "$jax" "${tests[@]}" test_jax_axis_gpu.py
wait
# Alone, as they measure time.
commit=${LONGSPAN_COMMIT:-$(git rev-parse HEAD 2> /dev/null || echo unknown)}
bench=("$PWD/bench/python_overhead.py" --commit "$commit")
run overhead "$torch" "${bench[@]}" torch --out "$out/torch.jsonl"
wait
run overhead_jax "$jax" "${bench[@]}" jax --out "$out/jax.jsonl"
wait
cat /dev/null "$out"/*.jsonl
report_parts "Python GPU lane" 60
