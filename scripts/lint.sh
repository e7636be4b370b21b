#!/usr/bin/env bash
# Format, text and layer checks. With --tidy also clang-tidy, which is slow.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/lint.sh [--fix] [--tidy [FILE]...]

Checks all files of the tree: clang-format 14, ASCII, 100 columns, file lengths, words that must not
stand, and that includes only lead to lower layers. Takes seconds.

  --fix    format the C++ files in place first
  --tidy   also run clang-tidy 14 (.clang-tidy) on FILEs, or on all sources (minutes); needs a
           configured build: cmake --preset release
TEXT
}

fix=0
tidy=0
tidy_files=()
for argument in "$@"; do
  case "$argument" in
    --fix) fix=1 ;;
    --tidy) tidy=1 ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "lint.sh: unknown argument '$argument'; see scripts/lint.sh --help" >&2; exit 2 ;;
    *) tidy_files+=("$argument") ;;
  esac
done
if [ ${#tidy_files[@]} -gt 0 ] && [ "$tidy" -eq 0 ]; then
  echo "lint.sh: files are only taken after --tidy" >&2
  exit 2
fi

# Files of the repository, or of the folder when it is not a clone.
all_files() {
  if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard
  else
    find . -path ./build -prune -o -type f -print | sed 's|^\./||'
  fi
}
mapfile -t existing < <(all_files | while read -r file; do [ ! -f "$file" ] || echo "$file"; done)
matching() { printf '%s\n' "${existing[@]}" | grep -E "$1" || true; }
mapfile -t cpp < <(matching '\.(h|cc|c|cu|cuh)$')
mapfile -t text < <(matching \
  '\.(h|cc|c|cu|cuh|py|sh|cmake|md|txt|json|in)$|^(\.ci/run|\.clang-(format|tidy)|NOTICE)$')

status=0
format=clang-format-14
if ! command -v "$format" > /dev/null; then
  echo "lint.sh: $format is not here; run scripts/setup.sh" >&2
  exit 1
fi
[ "$fix" -eq 0 ] || "$format" -i "${cpp[@]}"
if "$format" --dry-run -Werror "${cpp[@]}"; then
  echo "clang-format: ${#cpp[@]} files"
else
  echo "lint.sh: format with scripts/lint.sh --fix" >&2
  status=1
fi
python3 scripts/lint_text.py --self-test || status=1
python3 scripts/lint_text.py "${text[@]}" || status=1
python3 scripts/lint_layers.py --self-test || status=1
python3 scripts/lint_layers.py || status=1
python3 scripts/lint_names.py --self-test || status=1
python3 scripts/lint_names.py || status=1

if [ "$tidy" -eq 1 ]; then
  [ -f build/release/compile_commands.json ] ||
    { echo "lint.sh: --tidy needs a configured build: cmake --preset release" >&2; exit 1; }
  [ ${#tidy_files[@]} -gt 0 ] || mapfile -t tidy_files < <(matching '^(src|tools)/.*\.cc$')
  printf '%s\n' "${tidy_files[@]}" |
    xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p build/release || status=1
fi
exit "$status"
