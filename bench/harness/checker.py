"""The rules of a row. A row that breaks one is no measurement."""

import dataclasses
import math

import problem as problems
import ratios
from orders import is_complete
from rows import FIELDS

TOLERANCE = 1e-9


def close(a, b):
    return math.isclose(a, b, rel_tol=TOLERANCE)


def positive(row, name):
    value = row[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not value > 0:
        return [f"{name} is {value!r}: a positive number is needed"]
    return []


def figures(row):
    found = []
    for name in ("median_us", "mean_us", "tflops", "host_us", "iterations"):
        found += positive(row, name)
    if found:
        return found
    if not row["round_us"] or not close(ratios.median(row["round_us"]), row["median_us"]):
        found.append("median_us is not the median of round_us")
    work = problems.flops(problems.parse(row["problem"]), row["direction"])
    if not close(work / row["median_us"] / 1e6, row["tflops"]):
        found.append("tflops is not the problem's FLOPs over median_us")
    if not isinstance(row["extra_bytes"], int) or row["extra_bytes"] < 0:
        found.append("extra_bytes is no number of bytes")
    if row["yardstick_tflops"] is None and row["cublas_fraction"] is not None:
        found.append("cublas_fraction without yardstick_tflops")
    return found + eager_and_graph(row)


def eager_and_graph(row):
    found = []
    if row["direction"] == "both":
        found += positive(row, "wall_us")
    if row["graph_us"] is None and not row["graph_reason"]:
        found.append("neither graph_us nor a graph_reason")
    if row["graph_us"] is not None:
        found += positive(row, "graph_us")
    return found


def correctness(row):
    expected = {"o"} if row["direction"] == "forward" else {"o", "dq", "dk", "dv"}
    errors = row["relative_rms"]
    if not isinstance(errors, dict):
        return ["relative_rms is missing: the arm was not checked against float64"]
    if not row["checked_problem"]:
        return ["checked_problem is missing"]
    timed, checked = problems.parse(row["problem"]), problems.parse(row["checked_problem"])
    lengths = {"q_lengths": timed.q_lengths, "k_lengths": timed.k_lengths}
    if dataclasses.replace(checked, **lengths) != timed:
        return ["checked_problem is not the problem, nor a shorter one of its kind"]
    found = [f"relative_rms has no {name}" for name in sorted(expected - errors.keys())]
    found += [f"relative_rms of {name} is {value!r}" for name, value in errors.items()
              if not isinstance(value, (int, float)) or not math.isfinite(value)]
    return found


def audited(row):
    found = []
    peaks = row["peak_bytes"] or {}
    for kind in ("allocated", "reserved"):
        if len(peaks.get(kind) or []) != row["ranks"]:
            found.append(f"peak_bytes has no {kind} bytes of each rank")
    audit = row["audit"] or {}
    for name in ("forward", "fills", "attend_launches"):
        if name not in audit:
            found.append(f"the audit has no {name}")
    if row["gpus"] and not (row["telemetry"] or {}).get("samples"):
        found.append("no telemetry of the GPUs")
    if row["stable"] == bool(row["unstable"]):
        found.append("stable contradicts unstable")
    return found


def order_log(row):
    log = row["orders"]
    if not log:
        return ["no orders"]
    arms = sorted(log[0])
    found = [] if row["arm"] in arms else ["the arm is in no order"]
    if not is_complete(log, arms):
        found.append("orders are not all balanced orders, each equally often")
    if len(row["round_us"] or []) != len(log):
        found.append("round_us has not one figure per round")
    return found


def of_form(rules):
    """Fields that another program wrote may be of any type: that is a broken rule too."""
    def guarded(*arguments):
        try:
            return rules(*arguments)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            return [f"a field is not of its form: {error}"]
    return guarded


@of_form
def rules_of(row):
    """All rules that a row breaks on its own."""
    missing = [f"no field {name}" for name in FIELDS if name not in row]
    if missing:
        return missing
    if row["direction"] not in problems.DIRECTIONS:
        return [f"direction {row['direction']!r}"]
    found = [f"{name} is empty" for name in ("run_id", "commit", "case", "problem", "arm",
                                             "fingerprint") if not row[name]]
    if row["status"] == "failed":
        return found + ([] if row["message"] else ["failed without a message"])
    if row["status"] != "pass":
        return found + [f"status {row['status']!r}"]
    return found + figures(row) + correctness(row) + audited(row) + order_log(row)


@of_form
def pair_rules(row, group):
    """Ratios and wins against the rounds of the other arms of the same run, case, direction."""
    found = []
    passed = {other["arm"]: other for other in group if other["status"] == "pass"}
    expected = set(passed) - {row["arm"]}
    if set(row["ratio_to"]) != expected or set(row["wins"]) != expected:
        return [f"ratio_to and wins must name {sorted(expected)}"]
    for name in sorted(expected):
        theirs = passed[name]["round_us"]
        if len(theirs) != len(row["round_us"]):
            found.append(f"rounds of {name} and {row['arm']} are no pairs")
        elif not close(ratios.ratio(row["round_us"], theirs), row["ratio_to"][name]):
            found.append(f"ratio_to {name} is not the median of paired ratios")
        elif ratios.wins(row["round_us"], theirs) != row["wins"][name]:
            found.append(f"wins over {name} are not {row['wins'][name]}")
    return found


def violations(rows):
    """(index of the row, rule that it breaks) of a file's rows."""
    found = []
    sound = []
    for i, row in enumerate(rows):
        broken = rules_of(row)
        found += [(i, rule) for rule in broken]
        if not broken:
            sound.append((i, row))
    groups = {}
    for i, row in sound:
        key = (row["run_id"], row["case"], row["direction"])
        groups.setdefault(key, []).append((i, row))
    for group in groups.values():
        members = [row for _, row in group]
        for i, row in group:
            if row["status"] == "pass":
                found += [(i, rule) for rule in pair_rules(row, members)]
    return sorted(found)
