#!/usr/bin/env python3
"""Serves a peer as an arm: answers lines of standard input with JSON, as `longspan bench --serve`.

usage: serve.py --arm NAME --problem TEXT [--ranks N] [--graph] [--forward-only]
"""

import argparse
import importlib.metadata
import json
import math
import os
import site
import sys
import time

import torch
from many_gpus import MANY_GPUS
from one_gpu import FORWARD_ONLY, ONE_GPU
from peer import Refused, draw, need
from problem import parse, tensor_bytes
from ranks import Ranks
from reference import reference, relative_rms
from timing import replays, slower, timed_slice

# Whether results are wrong, not whether they are as exact as ours: errors stand in the rows.
BAR = 0.01
PACKAGES = ("torch", "flash-attn-4", "ffpa-attn", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl",
            "transformer_engine")


def versions():
    found = {"cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
                "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Server:
    def __init__(self, arguments):
        self.arguments = arguments
        self.problem = parse(arguments.problem)
        self.ranks = Ranks(arguments.ranks)
        self.forward_only = arguments.forward_only or arguments.arm in FORWARD_ONLY
        self.graph_reason = "not asked for"
        self.recorded = None

    def set_up(self):
        makers = ONE_GPU if self.ranks.count == 1 else MANY_GPUS
        need(self.arguments.arm in makers,
             f"{self.arguments.arm} does not run on {self.ranks.count} ranks")
        self.inputs = draw(self.problem)
        self.peer = makers[self.arguments.arm](self.inputs)
        self.iterate()
        self.peaks = self.ranks.gather(self.memory_of_an_iteration())
        if self.arguments.graph:
            self.record()

    def iterate(self):
        self.peer.forward()
        if not self.forward_only:
            self.peer.backward()
        torch.cuda.synchronize()

    def memory_of_an_iteration(self):
        """Bytes allocated beyond inputs and results, and reserved in all."""
        self.peer.o = self.peer.grads = None
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.iterate()
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        results = self.peer.results()
        made = sum(tensor.nbytes for tensor in results.values())
        if "o" in results:
            made += 4 * results["o"].shape[0] * self.problem.heads_q  # LSE, in float32
        return max(0, peak - before - made), reserved

    def record(self):
        if not self.peer.can_record:
            self.graph_reason = "this adapter does not record collectives"
            return
        try:
            self.recorded = replays(self.peer, self.forward_only)
            self.graph_reason = ""
        except Exception as error:  # noqa: BLE001  whatever a peer raises is its reason
            self.graph_reason = one_line(error)
            self.peer = ONE_GPU[self.arguments.arm](self.inputs)

    def ready(self):
        allocated, reserved = zip(*self.peaks)
        backend = {"provider": self.arguments.arm, "strategy": None, "partition": None}
        return {
            "problem": self.arguments.problem,
            "version": versions()["torch"],
            "ranks": self.ranks.count,
            "gpus": self.ranks.gpus,
            "device": torch.cuda.get_device_name(),
            "versions": versions(),
            "graph_reason": self.graph_reason,
            "audit": {
                "forward": backend,
                "backward": None if self.forward_only else backend,
                "attend_launches": None,
                "fills": None,
                "bytes_sent": None,
                "tensor_bytes": tensor_bytes(self.problem, self.forward_only),
                "peak_bytes": {"allocated": allocated, "reserved": reserved},
            },
        }

    def calls(self):
        return self.peer.forward, None if self.forward_only else self.peer.backward

    def round(self, warmup, iterations, replay):
        if replay and self.recorded is None:
            return {"reason": self.graph_reason}
        calls = self.recorded if replay else self.calls()
        return slower(self.ranks.gather(timed_slice(*calls, int(warmup), int(iterations))))

    def warm(self, seconds):
        begin, done, count = time.perf_counter(), False, 1
        iterations = 0
        while not done:
            answer = self.round(0, count, replay=False)
            iterations += count
            count = min(2 * count, 64)
            passed = time.perf_counter() - begin
            done = self.ranks.broadcast(passed >= float(seconds))
        both = [sum(times) for times in zip(answer["forward_us"], answer["backward_us"] or
                                            [0] * len(answer["forward_us"]))]
        return {"iterations": iterations, "seconds": passed,
                "median_us": sorted(both)[len(both) // 2]}

    def whole_results(self):
        """On rank 0, put together from the rows of all ranks."""
        mine = {name: rows.cpu() for name, rows in self.peer.results().items()}
        tokens = None if self.peer.tokens is None else self.peer.tokens.cpu()
        parts = self.ranks.gather((tokens, mine))
        if tokens is None:
            return mine
        whole = {}
        for name, rows in mine.items():
            whole[name] = torch.empty(sum(self.problem.q_lengths), *rows.shape[1:],
                                      dtype=rows.dtype).fill_(math.nan)
            for owned, results in parts:
                whole[name][owned] = results[name]
        return whole

    def check(self):
        self.iterate()
        whole = self.whole_results()
        if self.ranks.rank != 0:
            return None
        expected = reference(self.inputs)
        errors = {name: relative_rms(rows.cuda(), expected[name]) for name, rows in whole.items()}
        failed = [f"{name} {error:.3e} > {BAR}" for name, error in errors.items()
                  if not error <= BAR]
        finite = {name: error if math.isfinite(error) else None for name, error in errors.items()}
        torch.cuda.empty_cache()
        return {"pass": not failed, "relative_rms": finite, "failed": failed}

    def answer(self, line):
        command, *words = line.split()
        if command == "warm":
            return self.warm(*words)
        if command in ("round", "graph"):
            return self.round(*words, replay=command == "graph")
        if command == "check":
            return self.check()
        raise Refused(f"'{line}': one of warm, round, graph, check, end is needed")


def one_line(error):
    """The error that came first: leaving a broken capture raises another one."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def say(event, answer):
    print(json.dumps({**answer, "event": event}), flush=True)


def serve(server):
    server.set_up()
    talks = server.ranks.rank == 0
    if talks:
        say("ready", server.ready())
    while True:
        line = server.ranks.broadcast((sys.stdin.readline().strip() or "end") if talks else None)
        if line == "end":
            return
        answer = server.answer(line)
        if talks:
            say(line.split()[0], answer)


def find_packages():
    """LONGSPAN_PEER_SITE: folders of packages, whose .pth files count, before all others."""
    for folder in filter(None, os.environ.get("LONGSPAN_PEER_SITE", "").split(os.pathsep)):
        sys.path.insert(0, folder)
        site.addsitedir(folder)


def main():
    find_packages()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arm", required=True, choices=sorted({**ONE_GPU, **MANY_GPUS}))
    parser.add_argument("--problem", required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--forward-only", action="store_true")
    arguments = parser.parse_args()
    try:
        server = Server(arguments)
        serve(server)
        server.ranks.leave()
    except Exception as error:  # noqa: BLE001  the driver reports whatever a peer raises
        say("error", {"message": str(error) if isinstance(error, Refused) else one_line(error)})
        sys.stdout.flush()
        os._exit(1)  # other ranks may never come: no orderly end of the group


if __name__ == "__main__":
    main()
