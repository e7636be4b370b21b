#!/usr/bin/env bash
# Makes the store of prepared kernels that the tests in tests/gpu/prepared run. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/prepared_store.sh [--python PYTHON] [--jobs N] [--calibration] [--pack]

Compiles kernels of FlashAttention-4 and FROST for the problems of tests/gpu/prepared into
build/store, with the run-time libraries beside them. What is there stays.

  --python PYTHON  an interpreter with the packages that longspan.prepare names (default: an
                   environment in build/prepared-python, which is made, several GB)
  --jobs N         builds at a time (default 2)
  --calibration    also for the problems that longspan bench --calibrate times (half an hour)
  --pack           also write build/store.tar.xz, to carry to a machine with a GPU: unpack it in
                   build/ there
TEXT
}

python=
jobs=2
pack=0
calibration=0
while [ $# -gt 0 ]; do
  case "$1" in
    --python) python=${2:?--python takes an interpreter}; shift 2 ;;
    --jobs)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] ||
        { echo "prepared_store.sh: --jobs takes a positive number, not '${2:-}'" >&2; exit 2; }
      jobs=$2; shift 2 ;;
    --calibration) calibration=1; shift ;;
    --pack) pack=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "prepared_store.sh: unknown argument '$1'; see scripts/prepared_store.sh --help" >&2
       exit 2 ;;
  esac
done

if [ -z "$python" ]; then
  python=$PWD/build/prepared-python/bin/python
  [ -x "$python" ] || python3 -m venv build/prepared-python
  mapfile -t packages < <(awk '!/^#/ {print $2 "==" $3}' \
    bindings/python/longspan/prepare/packages.txt)
  "$python" -m pip --disable-pip-version-check install --quiet --pre "${packages[@]}" torch
fi

# The package by itself: what it stands in needs the native library, and has a folder torch.
home=build/prepared-package
mkdir -p "$home"
ln -sfn "$PWD/bindings/python/longspan/prepare" "$home/prepare"

problems=(
  "dtype=bf16 heads=4/2 dim=128 lengths=300,200 mask=causal window=64,0"
  "dtype=bf16 heads=32/8 dim=128 lengths=8192 mask=causal window=64,0"
  "dtype=bf16 heads=2/2 dim=128 lengths=512 mask=causal"
  "dtype=bf16 heads=4/2 dim=128 lengths=512 mask=causal deterministic=true"
  "dtype=bf16 heads=2/2 dim=128 lengths=512 mask=causal deterministic=true"
  "dtype=f16 heads=4/2 dim=128 lengths=512 mask=causal"
  "dtype=bf16 heads=4/2 dim=64 lengths=512 mask=causal"
  "dtype=bf16 heads=4/2 dim=256 lengths=512 mask=causal"
  "dtype=bf16 heads=4/2 dim=192 dim_v=128 lengths=512 mask=causal"
  "dtype=bf16 heads=2/2 dim=192 dim_v=128 lengths=512 mask=causal"
  "dtype=bf16 heads=4/2 dim=512 lengths=320 mask=causal"
  "dtype=bf16 heads=16/8 dim=512 lengths=4096 mask=causal"
)
if [ "$calibration" -eq 1 ]; then
  mapfile -t -O "${#problems[@]}" problems < <(grep -v '^#' tools/longspan/calibration_cases.txt)
fi
wanted=()
for problem in "${problems[@]}"; do wanted+=(--for "$problem"); done
store=$PWD/build/store
(cd "$home" && PYTHONDONTWRITEBYTECODE=1 "$python" -m prepare --out "$store" --jobs "$jobs" \
  --with-libraries "${wanted[@]}")
du -sh build/store
if [ "$pack" -eq 1 ]; then
  tar -C build -cf - store | xz -T0 > build/store.tar.xz
  du -h build/store.tar.xz
fi
