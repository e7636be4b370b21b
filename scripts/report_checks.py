#!/usr/bin/env python3
"""Reads JSON reports of `longspan run` and tells what they verified.

usage: report_checks.py REPORT...     prints "PASS <n> checks", or what failed
       report_checks.py --self-test   checks that bad reports do not pass

The checks are those that the reports list, each a value and the bar that it must not exceed. A
report fails that has another status than "pass", did not compare all of o, lse, dq, dk and dv with
float64, or holds a check that failed or is no number. Exit code 0 only on pass.
"""

import json
import math
import sys

EXPECTED = ("o", "lse", "dq", "dk", "dv")


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def passed(check):
    """Judged again here, not taken from the report's own word alone."""
    value, bar = check.get("value"), check.get("bar")
    return check.get("pass") is True and number(value) and number(bar) and value <= bar


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
    checks = report.get("checks") or []
    found = [f"check {check}: failed" for check in checks if not passed(check)]
    if not checks:
        found.append("no checks")
    tensors = report.get("tensors") or {}
    return found + [f"{name}: not compared" for name in EXPECTED
                    if not number((tensors.get(name) or {}).get("relative_rms"))]


def self_test():
    good = {"status": "pass", "tensors": {name: {"relative_rms": 1e-7} for name in EXPECTED},
            "checks": [{"name": "o", "value": 1e-7, "bar": 2e-6, "pass": True}]}
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
        {**good, "checks": []},
        {**good, "checks": [{**good["checks"][0], "pass": False}]},
        {**good, "checks": [{**good["checks"][0], "value": 3e-6}]},
        {**good, "checks": [{**good["checks"][0], "value": None}]},
    ]
    wrong = [f"accepted: {report}" for report in bad if not problems(report)]
    return wrong + ([f"rejected: {good}"] if problems(good) else [])


def main(arguments):
    if arguments == ["--self-test"]:
        wrong = self_test()
        print("\n".join(wrong) or "report_checks self-test: bad reports are found")
        return 1 if wrong else 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    checks, failures = 0, []
    for path in arguments:
        report = load(path)
        found = problems(report)
        failures += [f"{path}: {line}" for line in found]
        checks += 0 if found else len(report["checks"])
    for line in failures:
        print(f"FAIL {line}")
    if not failures:
        print(f"PASS {checks} checks")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
