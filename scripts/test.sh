#!/usr/bin/env bash
# Sets up, builds and runs everything that runs without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/test.sh [--only STAGE]... [--no-setup] [--jobs N]

Stages, in this order:
  release   everything is built with optimisation, all tests run but those that need a GPU
  lint      scripts/lint.sh
  python    the wheel is built, the Python tests run against it (torch and jax are downloaded)
  asan      address and undefined behaviour sanitizers, tests labelled unit or dist
  tsan      thread sanitizer, tests labelled unit or dist
  fuzz      the fuzz targets with address and undefined behaviour sanitizers, a minute each

and, where --only asks for it (packages of several GB, half an hour):
  prepared  kernels of FlashAttention-4 and FROST are exported, opened and called up to the driver

  --only STAGE   run this stage alone; may be repeated
  --no-setup     do not check or install packages
  --jobs N       parallel builds and tests (default: all cores)

A stage that fails does not keep the others from running; the exit code is 1 when any failed.
TEXT
}

chosen=()
setup=1
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --only)
      case "${2:-}" in
        release | lint | asan | tsan | python | fuzz | prepared) chosen+=("$2") ;;
        *)
          echo "test.sh: --only takes release, lint, asan, tsan, python, fuzz or prepared," \
            "not '${2:-}'" >&2
          exit 2 ;;
      esac
      shift 2 ;;
    --no-setup) setup=0; shift ;;
    --jobs)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] ||
        { echo "test.sh: --jobs takes a positive number, not '${2:-}'" >&2; exit 2; }
      jobs=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; see scripts/test.sh --help" >&2; exit 2 ;;
  esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=(release lint python asan tsan fuzz)

[ "$setup" -eq 0 ] || scripts/setup.sh
# shellcheck source=scripts/build_env.sh
. scripts/build_env.sh

# Thread sanitizer needs a predictable memory map, which some kernels' randomisation breaks.
without_randomisation=()
if setarch -R true 2> /dev/null; then without_randomisation=(setarch -R); fi

declare -A labels=([release]="" [asan]="unit|dist" [tsan]="unit|dist" [fuzz]="fuzz")
declare -A targets=([release]="all" [asan]="tests_unit tests_dist" [tsan]="tests_unit tests_dist"
                    [fuzz]="tests_fuzz")

# shellcheck disable=SC2317  # called through an array
run_tests() {  # preset
  local preset=$1 select=(-LE gpu) launcher=()
  [ -z "${labels[$preset]}" ] || select=(-L "${labels[$preset]}")
  [ "$preset" != tsan ] || launcher=("${without_randomisation[@]}")
  cmake --preset "$preset" > "build/$preset.configure.log" 2>&1 ||
    { cat "build/$preset.configure.log"; return 1; }
  # shellcheck disable=SC2086  # one argument per target
  cmake --build --preset "$preset" --parallel "$jobs" --target ${targets[$preset]} || return 1
  "${launcher[@]}" ctest --preset "$preset" --parallel "$jobs" --no-tests=error "${select[@]}" |
    tee "build/$preset.ctest.log"
}

# shellcheck disable=SC2317  # called through an array
run_python_tests() {
  local python tests=build/python/tests
  python=$(scripts/python_env.sh) || return 1
  cmake -S tests/python -B "$tests" -DPython_EXECUTABLE="$python" \
    -DLONGSPAN_WHEEL="$(echo "$PWD"/build/python/wheel/longspan-*.whl)" > /dev/null || return 1
  ctest --test-dir "$tests" --output-on-failure --no-tests=error | tee build/python.ctest.log
}

# The test of exported kernels is there where build/store is when CMake looks.
# shellcheck disable=SC2317  # called through an array
run_prepared_tests() {
  scripts/prepared_store.sh --jobs "$jobs" || return 1
  cmake --preset release > build/release.configure.log 2>&1 ||
    { cat build/release.configure.log; return 1; }
  cmake --build --preset release --parallel "$jobs" --target providers_prepared_exported_test ||
    return 1
  ctest --preset release --no-tests=error -R providers_prepared_exported_test |
    tee build/prepared.ctest.log
}

mkdir -p build
declare -A result seconds
failed=0
for stage in "${chosen[@]}"; do
  echo "== $stage"
  began=$SECONDS
  case "$stage" in
    lint) command=(scripts/lint.sh) ;;
    python) command=(run_python_tests) ;;
    prepared) command=(run_prepared_tests) ;;
    *) command=(run_tests "$stage") ;;
  esac
  [ "$stage" = lint ] || rm -f "build/$stage.ctest.log"
  if "${command[@]}" < /dev/null; then
    result[$stage]=passed
  else
    result[$stage]=FAILED
    failed=1
  fi
  seconds[$stage]=$((SECONDS - began))
done

echo
echo "== summary"
for stage in "${chosen[@]}"; do
  echo "$stage: ${result[$stage]} in ${seconds[$stage]} s"
done
for stage in "${chosen[@]}"; do
  [ -f "build/$stage.ctest.log" ] || continue
  echo "$stage:"
  grep -E '^[0-9]+% tests passed' "build/$stage.ctest.log" || echo "no test ran"
done
exit "$failed"
