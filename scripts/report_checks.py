#!/usr/bin/env python3
"""Reads JSON reports of `longspan run` and tells what they verified.

usage: report_checks.py REPORT                prints the figures of one report
       report_checks.py --summary REPORT...   prints "PASS <n> checks", or what failed
       report_checks.py --self-test           checks that bad reports do not pass

A check is one tensor of a report with status "pass", compared with float64. A report without all
of o, lse, dq, dk and dv, or with a figure that is no number, fails. Exit code 0 only on pass.
"""

import json
import math
import sys

EXPECTED = ("o", "lse", "dq", "dk", "dv")


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def load(path):
    """The report, or a report of status error that says why there is none."""
    try:
        with open(path, encoding="ascii") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        return {"status": "error", "message": f"no readable report: {error}"}
    return report if isinstance(report, dict) else {"status": "error", "message": "no JSON object"}


def problems(report):
    """What keeps the report from counting, empty when it passed."""
    if report.get("status") != "pass":
        return [f"status {report.get('status')}: {report.get('message') or 'no message'}"]
    tensors = report.get("tensors") or {}
    found = [f"{name}: not checked" for name in EXPECTED if name not in tensors]
    for name, figures in tensors.items():
        measured = [v for v in figures.values() if v is not None]
        if not measured or not all(number(v) for v in measured):
            found.append(f"{name}: {figures} holds a figure that is no number")
    return found


def describe(report):
    forward, backward = report.get("forward") or {}, report.get("backward") or {}
    print(f"  computed   forward {forward.get('strategy')} by {forward.get('provider')}, "
          f"backward {backward.get('strategy')} by {backward.get('provider')}, "
          f"partition {forward.get('partition')}, {report.get('ranks')} ranks")
    print(f"  problem    {report.get('problem')}")
    sent = report.get("bytes_sent") or {}
    for direction in ("forward", "backward"):
        if sent.get(direction):
            megabytes = sum(sent[direction]) / 1e6
            print(f"  sent       {direction} {megabytes:.2f} MB by all ranks together")
    for name, figures in (report.get("tensors") or {}).items():
        text = ", ".join(f"{key} {value:.2e}" for key, value in figures.items() if number(value))
        print(f"  verified   {name:4} against float64: {text}")


def self_test():
    good = {"status": "pass", "tensors": {name: {"relative_rms": 1e-7} for name in EXPECTED}}
    without_dv = {name: good["tensors"][name] for name in EXPECTED if name != "dv"}
    bad = [
        {},
        {**good, "status": "fail"},
        {**good, "status": "declined", "message": "why"},
        {**good, "tensors": None},
        {**good, "tensors": without_dv},
        {**good, "tensors": {**good["tensors"], "o": {"relative_rms": None}}},
        {**good, "tensors": {**good["tensors"], "o": {"relative_rms": math.inf}}},
        {**good, "tensors": {**good["tensors"], "o": {}}},
    ]
    wrong = [f"accepted: {report}" for report in bad if not problems(report)]
    return wrong + ([f"rejected: {good}"] if problems(good) else [])


def main(arguments):
    if arguments == ["--self-test"]:
        wrong = self_test()
        print("\n".join(wrong) or "report_checks self-test: bad reports are found")
        return 1 if wrong else 0
    summary = arguments[:1] == ["--summary"]
    paths = arguments[1:] if summary else arguments
    if not paths or (not summary and len(paths) != 1):
        print(__doc__, file=sys.stderr)
        return 2
    checks, failures = 0, []
    for path in paths:
        report = load(path)
        found = problems(report)
        failures += [f"{path}: {line}" for line in found]
        checks += 0 if found else len(report["tensors"])
        if not summary and not found:
            describe(report)
    for line in failures:
        print(f"FAIL {line}")
    if summary and not failures:
        print(f"PASS {checks} checks")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
