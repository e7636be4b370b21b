"""Rows of bench/results: one per case, arm and direction."""

import problem as problems
import ratios
from telemetry import summary

CONVENTION_FIELDS = (
    "run_id", "commit", "case", "problem", "direction", "arm", "ranks", "gpus", "median_us",
    "tflops", "cublas_fraction", "ratio_to", "wins", "efficiency", "relative_rms", "extra_bytes",
    "host_us", "fingerprint",
)
PROTOCOL_FIELDS = (
    "status", "message", "checked_problem", "mean_us", "wall_us", "graph_us", "graph_reason",
    "round_us",
    "yardstick_tflops", "orders", "processes", "warm_seconds", "warmup", "iterations",
    "peak_bytes", "audit", "libraries", "complaints", "telemetry", "stable", "unstable",
)
FIELDS = CONVENTION_FIELDS + PROTOCOL_FIELDS
YARDSTICK_FLOPS = 2 * 8192**3


def times(answer, direction):
    """Device microseconds of each iteration; None where the arm has no such direction."""
    forward, backward = answer.get("forward_us"), answer.get("backward_us")
    if direction == "forward":
        return forward
    if backward is None:
        return None
    if direction == "backward":
        return backward
    return [a + b for a, b in zip(forward, backward, strict=True)]


def round_medians(answers, direction):
    """One figure per round; None where the arm has no such direction."""
    every = [times(answer, direction) for answer in answers]
    if not every or any(values is None for values in every):
        return None
    return [ratios.median(values) for values in every]


def host_us(answers, direction):
    sides = ("forward", "backward") if direction == "both" else (direction,)
    values = [[ratios.median(answer["host_us"][side]) for side in sides] for answer in answers]
    return ratios.median([sum(figures) for figures in values])


def mean_us(answers, direction):
    values = [value for answer in answers for value in times(answer, direction)]
    return sum(values) / len(values)


def directions_of(arm):
    """Those that the arm was timed in; all that were wanted for an arm that failed."""
    if not arm.rounds:
        return ("both",)
    return tuple(d for d in problems.DIRECTIONS if round_medians(arm.rounds, d) is not None)


def yardstick_rounds(record):
    """TFLOP/s of the yardstick in each round; None without one."""
    yardstick = record.yardstick
    if yardstick is None or not yardstick.rounds:
        return None
    return [YARDSTICK_FLOPS / us / 1e6 for us in round_medians(yardstick.rounds, "forward")]


def speeds(record, arm, direction):
    problem = problems.parse(record.problem)
    rounds = round_medians(arm.rounds, direction)
    work = problems.flops(problem, direction)
    gpus = max(1, arm.ready["gpus"])
    yardstick = yardstick_rounds(record)
    fraction = None
    if yardstick is not None:
        fraction = ratios.median(
            work / us / 1e6 / gpus / rate for us, rate in zip(rounds, yardstick, strict=True)
        )
    return {
        "median_us": ratios.median(rounds),
        "mean_us": mean_us(arm.rounds, direction),
        "round_us": rounds,
        "tflops": work / ratios.median(rounds) / 1e6,
        "yardstick_tflops": yardstick,
        "cublas_fraction": fraction,
    }


def comparisons(record, arm, direction):
    mine = round_medians(arm.rounds, direction)
    out = {"ratio_to": {}, "wins": {}}
    for other in record.arms:
        theirs = round_medians(other.rounds, direction)
        if other is arm or theirs is None:
            continue
        out["ratio_to"][other.name] = ratios.ratio(mine, theirs)
        out["wins"][other.name] = ratios.wins(mine, theirs)
    return out


def efficiency(record, arm, direction):
    """The best one-GPU arm's time / (gpus x this arm's); None without an arm on one GPU."""
    alone = [
        ratios.median(medians)
        for other in record.arms
        if other.rounds and other.ready["gpus"] == 1
        for medians in [round_medians(other.rounds, direction)]
        if medians is not None
    ]
    if not alone or arm.ready["gpus"] == 0:
        return None
    mine = ratios.median(round_medians(arm.rounds, direction))
    return min(alone) / (arm.ready["gpus"] * mine)


def graph_figures(arm, direction):
    """Time of a replay, or why there is none."""
    if not arm.graphs:
        return {"graph_us": None, "graph_reason": "not asked for"}
    reasons = [answer["reason"] for answer in arm.graphs if "reason" in answer]
    if reasons:
        return {"graph_us": None, "graph_reason": reasons[0]}
    return {"graph_us": ratios.median(round_medians(arm.graphs, direction)), "graph_reason": ""}


def protocol(record, settings):
    return {
        "checked_problem": record.checked_problem,
        "orders": record.orders,
        "processes": settings.fresh,
        "warm_seconds": settings.warm_seconds,
        "warmup": settings.warmup,
        "iterations": record.iterations,
        "telemetry": summary(record.samples),
        "stable": not record.unstable,
        "unstable": record.unstable,
    }


def passed_row(record, arm, direction):
    peaks = arm.ready["audit"]["peak_bytes"]
    only = len(directions_of(arm)) == 1
    wall = ratios.median([answer["wall_us"] for answer in arm.rounds])
    return {
        "status": "pass",
        "message": "",
        "problem": arm.ready["problem"],
        "gpus": arm.ready["gpus"],
        **speeds(record, arm, direction),
        **comparisons(record, arm, direction),
        "efficiency": efficiency(record, arm, direction),
        "relative_rms": arm.check["relative_rms"] if arm.check else None,
        "extra_bytes": max(peaks["allocated"]),
        "peak_bytes": peaks,
        "host_us": host_us(arm.rounds, direction),
        "wall_us": wall if only or direction == "both" else None,
        **graph_figures(arm, direction),
        "audit": arm.ready["audit"],
        "libraries": arm.libraries,
        "complaints": arm.complaints,
    }


def failed_row(record, arm):
    """No figure stands for an arm that failed; what its check found does."""
    row = dict.fromkeys(FIELDS)
    row.update(status="failed", message=arm.failure, problem=record.problem)
    row.update(relative_rms=arm.check["relative_rms"] if arm.check else None)
    row.update(audit=arm.ready["audit"] if arm.ready else None)
    return row


def rows(record, settings, common):
    """`common`: run_id, commit and fingerprint."""
    for arm in record.arms:
        for direction in directions_of(arm):
            row = dict.fromkeys(FIELDS)
            row.update(passed_row(record, arm, direction) if arm.alive and arm.rounds
                       else failed_row(record, arm))
            row.update(common)
            row.update(protocol(record, settings))
            row.update(case=record.name, direction=direction, arm=arm.name, ranks=arm.ranks)
            if arm.ready and "versions" in arm.ready:
                row["fingerprint"] = {**row["fingerprint"], "versions": arm.ready["versions"]}
            yield row
