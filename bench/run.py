#!/usr/bin/env python3
"""Times arms against each other and appends rows to a file. See docs/guides/benchmarks.md.

Example: bench/run.py --cases headline --match d128_8k_causal \\
           --arms longspan,cudnn,torch_sdpa_cudnn,torch_sdpa_flash --out bench/results/h200.jsonl
"""

import argparse
import contextlib
import json
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "harness"))

import problem as problems  # noqa: E402
from checker import violations  # noqa: E402
from fingerprint import commit, fingerprint  # noqa: E402
from lines import Unreadable, read_objects  # noqa: E402
from rows import rows  # noqa: E402
from session import Case, Settings  # noqa: E402
from telemetry import Telemetry  # noqa: E402


def read_cases(name):
    """The objects {"case", "ranks", "problem"} of a file of bench/cases, or of a path."""
    path = pathlib.Path(name)
    if not path.is_file():
        path = HERE / "cases" / f"{name}.jsonl"
    return [checked_case(f"{path}:{number}", case)
            for number, case in read_objects(path, ("case", "ranks", "problem"))]


def checked_case(where, case):
    """The case, of whose problem programs other than longspan can make sense too."""
    if not isinstance(case["ranks"], int) or case["ranks"] < 1:
        raise Unreadable(f"{where}: ranks is {case['ranks']}, at least 1 is needed")
    try:
        problems.parse(case["problem"])
    except (AttributeError, KeyError, ValueError) as error:
        raise Unreadable(f"{where}: '{case['problem']}' is no problem text: {error}") from None
    return case


def log(text):
    print(text, file=sys.stderr, flush=True)


def describe(row):
    if row["status"] != "pass":
        return f"  {row['arm']}: {row['message']}"
    ratios = ", ".join(f"{r:.3f} of {name} ({row['wins'][name]})"
                       for name, r in row["ratio_to"].items())
    return (f"  {row['direction']:8} {row['arm']:20} {row['median_us']:12.1f} us "
            f"{row['tflops']:7.1f} TFLOP/s  {ratios}")


def at_least(least, kind):
    """Reads a number that an argument must not be below."""
    def number(text):
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text}: at least {least} is needed")
        return value
    return number


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


def parse_arguments(words):
    standard = Settings()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", required=True, help="a file of bench/cases without its .jsonl, or a path")
    add("--match", default=pattern(""), type=pattern,
        help="regular expression: cases whose name holds it")
    add("--arms", required=True, help="comma-separated; NAME@1 runs on one rank")
    add("--out", required=True, type=pathlib.Path, help="JSON lines, appended to")
    add("--longspan", default=standard.longspan, help="the program")
    add("--prepared", default=standard.prepared, metavar="DIR",
        help="store of prepared kernels for longspan's arms")
    add("--device", default=standard.device, help="of longspan's arms: cuda, cuda:N or cpu")
    add("--direction", choices=("both", "forward"), default=standard.direction)
    add("--cycles", type=at_least(1, int), default=standard.cycles, help="of all balanced orders")
    add("--fresh", choices=("order", "case"), default=standard.fresh,
        help="start processes anew for each order, or once a case")
    add("--warm-seconds", type=at_least(0, float), default=standard.warm_seconds)
    add("--warmup", type=at_least(0, int), default=standard.warmup,
        help="untimed iterations of a round")
    add("--iterations", type=at_least(1, int), default=standard.iterations, help="timed, at most")
    add("--slice-seconds", type=at_least(0, float), default=standard.slice_seconds,
        help="fewer iterations where they would take longer than this, down to 5")
    add("--graph", action="store_true", help="also record CUDA graphs and time replays")
    add("--check-flops", type=float, default=standard.check_flops,
        help="problems of more are checked at half their lengths, and so on")
    add("--no-check", action="store_true", help="no float64 check; such rows break a rule")
    add("--no-yardstick", action="store_true", help="no cuBLAS product in each round")
    add("--commit", help="of the program, where the harness lies in no clone")
    add("--budget", type=at_least(0, float), default=float("inf"),
        help="seconds after which no case starts")
    return parser.parse_args(words)


def settings_of(arguments):
    names = ("longspan", "prepared", "device", "direction", "cycles", "fresh", "warm_seconds",
             "warmup", "iterations", "slice_seconds", "graph", "check_flops")
    chosen = {name: getattr(arguments, name) for name in names}
    yardstick = arguments.device != "cpu" and not arguments.no_yardstick
    return Settings(**chosen, check=not arguments.no_check, yardstick=yardstick)


def measure(cases, arguments, out, meter):
    """Numbers of rows that were written and of rules that they break."""
    settings = settings_of(arguments)
    common = {"run_id": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
              "commit": arguments.commit or commit(), "fingerprint": fingerprint(settings.longspan)}
    begin = time.monotonic()
    broken = written = 0
    for case in cases:
        name = case["case"]
        if time.monotonic() - begin > arguments.budget:
            log(f"{name}: not started, the budget of {arguments.budget:.0f} s is spent")
            continue
        record = Case(name, case["problem"], case["ranks"], arguments.arms.split(","),
                      settings, log).run(meter)
        new = list(rows(record, settings, common))
        log(f"{name} after {time.monotonic() - begin:.0f} s"
            + (f", unstable: {'; '.join(record.unstable)}" if record.unstable else ""))
        for row in new:
            log(describe(row))
            out.write(json.dumps(row) + "\n")
        out.flush()
        written += len(new)
        for index, rule in violations(new):
            log(f"  broken rule, {new[index]['arm']} {new[index]['direction']}: {rule}")
            broken += 1
    return written, broken


def main(words):
    arguments = parse_arguments(words)
    try:
        cases = [case for case in read_cases(arguments.cases)
                 if arguments.match.search(case["case"])]
        out = open(arguments.out, "a", encoding="ascii")
    except (Unreadable, OSError) as error:
        log(f"run.py: {error}")
        return 2
    with out, contextlib.closing(Telemetry()) as meter:
        written, broken = measure(cases, arguments, out, meter)
    log(f"{written} rows in {arguments.out}, {broken} broken rules")
    return 1 if broken or not written else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
