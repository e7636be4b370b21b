# shellcheck shell=bash
# Sourced by the GPU lanes: how their parts run, and what became of them. A lane sets `only`, which
# names must match, and `out`, the folder of logs.
: "${only:?}" "${out:?}"
names=()

# Runs a command beside the others; its log and exit code are kept under its name.
part() {  # seconds at most, what the log says of skipped tests, name, command...
  local seconds=$1 skipped=$2 name=$3
  shift 3
  [[ $name =~ $only ]] || return 0
  names+=("$name")
  rm -f "$out/$name.rc"
  (
    rc=0
    began=$SECONDS
    timeout "$seconds" "$@" > "$out/$name.log" 2>&1 || rc=$?
    ! grep -q "$skipped" "$out/$name.log" || rc=skipped
    echo "$rc" > "$out/$name.rc"
    echo "$([ "$rc" = 0 ] && echo ok || echo "FAILED ($rc)") $name, $((SECONDS - began)) s:" \
      "$(tail -n 1 "$out/$name.log")"
  ) &
}

# Waits for all parts, shows the ends of the logs of those that failed, and exits unless none did.
report_parts() {  # name of the lane, lines of a log
  local name failed=()
  wait
  [ ${#names[@]} -gt 0 ] || { echo "$0: nothing has a name that matches '$only'" >&2; exit 2; }
  for name in "${names[@]}"; do
    [ "$(cat "$out/$name.rc" 2> /dev/null)" = 0 ] || failed+=("$name")
  done
  for name in "${failed[@]}"; do
    echo "== $name"
    tail -n "$2" "$out/$name.log"
  done
  if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED ${#failed[@]} of ${#names[@]}: ${failed[*]}"
    exit 1
  fi
  echo "PASS: all ${#names[@]} of the $1"
}
