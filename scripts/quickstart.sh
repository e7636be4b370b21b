#!/usr/bin/env bash
# From a fresh clone to verified attention over four ranks.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/quickstart.sh

Installs what is missing, builds the command line in build/release and computes attention, forward
and backward, over 4 ranks: on a shipped sample from a real transformer with two strategies, and on
a long random causal sequence. Every result is checked against float64. The last line is
"PASS <n> checks"; the exit code is not zero otherwise.
TEXT
}

case "${1:-}" in
  "") ;;
  -h | --help) usage; exit 0 ;;
  *) echo "quickstart.sh: unknown argument '$1'; see scripts/quickstart.sh --help" >&2; exit 2 ;;
esac

scripts/setup.sh --build-only
# shellcheck source=scripts/build_env.sh
. scripts/build_env.sh

longspan=build/release/longspan
sample=examples/data/minilm_packed.safetensors
reports=build/quickstart
log=build/quickstart/build.log
rm -rf "$reports"
mkdir -p "$reports"

echo "Building $longspan ..."
if ! { cmake --preset release -DLONGSPAN_TESTS=OFF -DLONGSPAN_BENCH=OFF &&
  cmake --build --preset release --parallel "$(nproc)" --target longspan_cli; } \
  > "$log" 2>&1 < /dev/null; then
  tail -n 40 "$log" >&2
  echo "quickstart.sh: the build failed; all of its output is in $log" >&2
  exit 1
fi

quoted() {  # the arguments, those with spaces in quotes
  local word words=()
  for word in "$@"; do
    case "$word" in *" "*) word="\"$word\"" ;; esac
    words+=("$word")
  done
  echo "${words[*]}"
}

failed_jobs=0
job() {  # name of the report, what it is about, arguments
  local report=$reports/$1.json
  echo
  echo "$2"
  shift 2
  echo "  \$ $longspan $(quoted "$@")"
  # A failure is told here and again by the last line; the other jobs run all the same.
  "$longspan" "$@" --json "$report" < /dev/null 2>&1 | sed 's/^/  /' ||
    failed_jobs=$((failed_jobs + 1))
}

job sample_ring \
  "1. Six documents read by a transformer, packed; keys and values travel around a ring." \
  run --input "$sample" --ranks 4 --forward ring --backward ring
job sample_all_to_all \
  "2. The same documents; ranks exchange tokens for heads." \
  run --input "$sample" --ranks 4 --forward all_to_all --backward all_to_all
job causal_ring \
  "3. One causal sequence of random numbers, 8 query heads on 2 key heads." \
  run --problem "dtype=f32 heads=8/2 dim=64 lengths=4096 mask=causal" \
  --ranks 4 --forward ring --backward ring

cat <<TEXT

Try next:
  $longspan explain --problem "dtype=bf16 heads=8/2 dim=64 lengths=4096 mask=causal" --ranks 4
  $longspan schedule --problem "heads=8/2 dim=64 lengths=4096 mask=causal dtype=bf16" --ranks 4 \\
      --forward ring --plot ring.svg
  $longspan run --help
  scripts/test.sh        (all tests, about half an hour on two cores)
  docs/overview.md       (how it works)

TEXT
if [ "$failed_jobs" -gt 0 ]; then
  echo "FAIL: $failed_jobs of 3 jobs ended with an error; their reports are in $reports"
  exit 1
fi
python3 scripts/report_checks.py "$reports"/sample_ring.json \
  "$reports"/sample_all_to_all.json "$reports"/causal_ring.json
