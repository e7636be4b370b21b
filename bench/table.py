#!/usr/bin/env python3
"""Makes a Markdown table and, with --plot FILE.svg, a drawing of the rows of a file.

usage: table.py FILE.jsonl [--run RUN_ID] [--plot FILE.svg]   without --run: the last run alone
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "harness"))

from drawing import draw  # noqa: E402
from lines import Unreadable, read_objects  # noqa: E402
from rows import FIELDS  # noqa: E402

HEAD = ("case", "direction", "arm", "GPUs", "time us", "TFLOP/s", "of cuBLAS", "ratio to (wins)",
        "efficiency", "host us", "graph us", "extra MiB", "error of o, dq, dk, dv", "stable")


def number(value, form):
    return "-" if value is None else format(value, form)


def ratio_text(row):
    return ", ".join(f"{name} {value:.3f} ({row['wins'][name]})"
                     for name, value in row["ratio_to"].items()) or "-"


def error_text(errors):
    if errors is None:
        return "not checked"
    values = [errors[name] for name in ("o", "dq", "dk", "dv") if name in errors]
    return ", ".join(number(value, ".1e") for value in values)


def cells(row):
    head = [row["case"], row["direction"], f"`{row['arm']}`"]
    if row["status"] != "pass":
        return head + [f"failed: {row['message']}".replace("|", "/")] + [""] * (len(HEAD) - 4)
    return head + [
        str(row["gpus"]),
        number(row["median_us"], ".1f"),
        number(row["tflops"], ".1f"),
        number(row["cublas_fraction"], ".3f"),
        ratio_text(row),
        number(row["efficiency"], ".3f"),
        number(row["host_us"], ".1f"),
        number(row["graph_us"], ".1f"),
        number(row["extra_bytes"] / 2**20, ".1f"),
        error_text(row["relative_rms"]),
        "yes" if row["stable"] else "no: " + "; ".join(row["unstable"]),
    ]


def table(rows):
    lines = [HEAD, ["---"] * len(HEAD), *(cells(row) for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def chosen(rows, run_id):
    """Rows of one run: the named one, else that of the last row."""
    wanted = run_id or (rows[-1]["run_id"] if rows else None)
    return [row for row in rows if row["run_id"] == wanted]


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--run")
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args(words)
    try:
        rows = chosen([row for _, row in read_objects(arguments.file, FIELDS)], arguments.run)
    except Unreadable as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 2
    if not rows:
        print(f"{arguments.file}: no rows of that run", file=sys.stderr)
        return 1
    print(table(rows), end="")
    if arguments.plot:
        try:
            arguments.plot.write_text(draw(rows), encoding="ascii")
        except OSError as error:
            print(f"table.py: {arguments.plot} cannot be written: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
