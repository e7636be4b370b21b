#!/usr/bin/env bash
# $1: a wheel, $2: the interpreter it was tested with. Installs the wheel alone into a clean
# environment of another Python and runs the tests that need no framework. Exit code 77: there is no
# other Python.
set -euo pipefail
cd "$(dirname "$0")/core"

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null || true; }

candidates() {
  local minor
  for minor in 13 12 11 10; do
    command -v "python3.$minor" || true
    ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3 2> /dev/null || true
  done
}

first=$(version_of "$2")
for python in $(candidates); do
  second=$(version_of "$python")
  if [ -n "$second" ] && [ "$second" != "$first" ]; then break; fi
  python=
done
[ -n "${python:-}" ] || { echo "only Python $first is here: no second one was tested"; exit 77; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
"$python" -m venv "$home"
"$home/bin/python" -m pip --disable-pip-version-check install --quiet "$1" pytest==9.2.0
echo "Python $second: $("$home/bin/longspan" --version)"
"$home/bin/python" -m pytest -q .
