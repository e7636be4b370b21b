#!/usr/bin/env python3
"""Checks that rows hold all fields and keep the rules of docs/guides/benchmarks.md.

usage: check_rows.py FILE.jsonl...   prints each broken rule; exit code 1 when there is one, or a
                                     file without rows, 2 when a file cannot be read
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "harness"))

from checker import violations  # noqa: E402
from lines import Unreadable, read_objects  # noqa: E402


def read_rows(path):
    return [row for _, row in read_objects(path)]


def main(paths):
    if not paths or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    sound = True
    for path in paths:
        try:
            lines = read_objects(path)
        except Unreadable as error:
            print(f"check_rows.py: {error}", file=sys.stderr)
            return 2
        found = violations([row for _, row in lines])
        for index, rule in found:
            number, row = lines[index]
            where = f"{path}:{number}: {row.get('case')} {row.get('arm')}"
            print(f"{where} {row.get('direction')}: {rule}")
        sound = sound and lines != [] and not found
        print(f"{path}: {len(lines)} rows, {len(found)} broken rules")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
