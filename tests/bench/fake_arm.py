#!/usr/bin/env python3
"""Answers as `longspan bench --serve` would, with times that are known beforehand.

The provider says how it behaves: cpu/fast and cpu/slow are sound, cpu/wrong fails its check,
cpu/dies ends in its third round, cpu/refuses cannot compute the problem.
"""

import json
import sys


def flag(name, standard=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else standard


def say(event, **answer):
    print(json.dumps({**answer, "event": event}), flush=True)


def main():
    print("a library that prints to standard output")
    kind = flag("--provider", "require:cpu/fast").removeprefix("require:")
    if kind == "cpu/refuses":
        say("error", message="unsupported: dim 999 > 256")
        return 2
    ranks = int(flag("--ranks", "1"))
    audit = {"forward": {"provider": kind}, "backward": {"provider": kind}, "fills": None,
             "attend_launches": [1] * ranks,
             "peak_bytes": {"allocated": [64] * ranks, "reserved": [128] * ranks}}
    say("ready", problem=flag("--problem"), version="0", ranks=ranks, gpus=0, device="cpu",
        audit=audit, graph_reason="not asked for")
    rounds = 0
    base = {"cpu/slow": 200.0}.get(kind, 100.0)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "end":
            break
        if command == "warm":
            say("warm", iterations=1, seconds=float(words[0]), median_us=base)
        if command == "check":
            wrong = kind == "cpu/wrong"
            errors = dict.fromkeys(("o", "dq", "dk", "dv"), 1.0 if wrong else 1e-7)
            say("check", relative_rms=errors, failed=["o 1 > 2e-6"] if wrong else [],
                **{"pass": not wrong})
        if command == "round":
            rounds += 1
            if kind == "cpu/dies" and rounds == 3:
                print("out of luck", file=sys.stderr)
                return 3
            times = [base + rounds] * int(words[1])
            say("round", forward_us=times, backward_us=[2 * t for t in times],
                host_us={"forward": [5.0], "backward": [7.0]}, wall_us=3 * base)
        if command == "graph":
            say("graph", reason="not asked for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
