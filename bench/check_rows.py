#!/usr/bin/env python3
"""Checks that rows hold all fields and keep the rules of docs/guides/benchmarks.md.

usage: check_rows.py FILE.jsonl...   prints each broken rule; exit code 1 when there is one
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "harness"))

from checker import violations  # noqa: E402


def read_rows(path):
    with open(path, encoding="ascii") as file:
        return [json.loads(line) for line in file if line.strip()]


def main(paths):
    if not paths or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    broken = 0
    for path in paths:
        rows = read_rows(path)
        found = violations(rows)
        for index, rule in found:
            row = rows[index]
            where = f"{path}:{index + 1}: {row.get('case')} {row.get('arm')}"
            print(f"{where} {row.get('direction')}: {rule}")
        broken += len(found)
        print(f"{path}: {len(rows)} rows, {len(found)} broken rules")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
