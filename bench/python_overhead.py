#!/usr/bin/env python3
"""What the Python front ends cost the host, beside the library's call alone.

usage: python_overhead.py torch|jax [--device cuda|cpu] [--calls N] [--commit ID] [--out FILE.jsonl]

Needs longspan and the framework installed. Figures are microseconds of host time of one call,
medians over rounds of queued calls on a small problem; `beyond_us` is what lies beyond the arm
named in `beside`, `bar_us` the most that it may be. The exit code is 1 when a bar is broken. Run it
on a machine that does nothing else.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time

PROBLEM = {"dtype": "bf16", "heads": (8, 2), "dim": 64, "lengths": [512, 512], "causal": True}
TINY = {**PROBLEM, "dim": 8, "lengths": [1, 1]}  # where the host computes, too
ROUNDS = 15


def median_us(call, calls: int, wait=lambda: None) -> float:
    """Of host time. Queued work is waited for between rounds alone."""
    rounds = []
    for _ in range(ROUNDS + 2):
        wait()
        began = time.perf_counter_ns()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter_ns() - began) / calls / 1e3)
    wait()
    return statistics.median(rounds[2:])


class TorchArms:
    """One problem through the front end, and through the library with all memory at hand."""

    def __init__(self, device: str):
        import torch

        from longspan import _native
        from longspan.torch import attention, engine_of

        self.torch, self.native, self.attention = torch, _native, attention
        self.on_gpu = device.startswith("cuda")
        self.problem = PROBLEM if self.on_gpu else TINY
        self.plan = plan = engine_of(device=device).plan(**self.problem)
        rows, (heads, kv_heads) = plan.local_shape(), self.problem["heads"]
        make = lambda h: torch.randn(  # noqa: E731
            (*rows, h, plan.dim), dtype=torch.bfloat16, device=device
        )
        self.plain, self.dout = [make(heads), make(kv_heads), make(kv_heads)], make(heads)
        self.inputs = [tensor.clone().requires_grad_() for tensor in self.plain]
        self.o = torch.empty_like(self.dout)
        self.gradients = [torch.empty_like(tensor) for tensor in self.plain]
        self.lse = torch.empty((*rows, heads), device=device)
        count = plan.saved_bytes + max(plan.workspace_bytes)
        self.block = torch.empty(count, dtype=torch.uint8, device=device)
        self.saved = self.block.data_ptr()
        self.workspace = self.saved + plan.saved_bytes
        self.identity_function = self._identity_function()

    def _identity_function(self):
        empty_like = self.torch.empty_like

        class Identity(self.torch.autograd.Function):
            @staticmethod
            def forward(ctx, q, k, v):
                ctx.save_for_backward(q, k, v)
                return empty_like(q)

            @staticmethod
            def backward(ctx, dout):
                return tuple(empty_like(tensor) for tensor in ctx.saved_tensors)

        return Identity

    def wait(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def library_forward(self):
        plan = self.plan
        self.native.forward(
            plan.engine.handle, plan.call, *self.plain, self.o, self.lse, plan.scale, *(None,) * 6,
            0.0, -1.0, 0, 0, self.saved, self.workspace, plan.workspace_bytes[0],
        )

    def library_both(self):
        self.library_forward()
        plan = self.plan
        self.native.backward(
            plan.engine.handle, plan.call, *self.plain, self.o, self.lse, self.dout,
            *self.gradients, plan.scale, *(None,) * 7, 0.0, -1.0, 0, 0, self.saved,
            self.workspace, plan.workspace_bytes[1],
        )

    def forward(self):
        return self.attention(*self.plain, plan=self.plan)

    def both(self):
        o = self.attention(*self.inputs, plan=self.plan)
        return self.torch.autograd.grad(o, self.inputs, self.dout)

    def identity(self):
        """What autograd itself costs: a function of the same tensors that computes nothing."""
        o = self.identity_function.apply(*self.inputs)
        return self.torch.autograd.grad(o, self.inputs, self.dout)

    def replay_of(self, call):
        """A closure that replays a graph of the call."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            kept = call()
        return lambda: (graph.replay(), kept)[0]

    def rows(self, calls: int):
        us = lambda call: median_us(call, calls, self.wait)  # noqa: E731
        native, front = us(self.library_forward), us(self.forward)  # of tensors without gradient
        native_both, both = us(self.library_both), us(self.both)
        yield from pair("forward", "torch", front, "library", native, 10)
        yield from pair("both", "torch", both, "library", native_both, 10 + 40)
        yield {"direction": "both", "arm": "torch:identity", "median_us": us(self.identity)}
        with self.torch.autograd.set_multithreading_enabled(False):  # backward in this thread
            both, least = us(self.both), us(self.identity)
        yield from pair("both", "torch:one_thread", both, "torch:identity:one_thread", least, None)
        if not self.on_gpu:
            return
        replays = [us(self.replay_of(call)) for call in (self.library_both, self.both)]
        yield from pair("both", "torch:graph", replays[1], "library:graph", replays[0], 1)


def pair(direction: str, arm: str, us: float, beside: str, less: float, bar: float | None):
    yield {"direction": direction, "arm": beside, "median_us": less}
    yield {"direction": direction, "arm": arm, "median_us": us, "beside": beside,
           "beyond_us": us - less, "bar_us": bar}


class JaxArms:
    """A compiled program of one call beside one that passes its arguments on."""

    def __init__(self, device: str):
        import jax
        import jax.numpy as jnp

        from longspan.jax import attention

        self.jax = jax
        self.problem = PROBLEM if jax.default_backend() != "cpu" else TINY
        batch, seq = len(self.problem["lengths"]), self.problem["lengths"][0]
        make = lambda h: jnp.ones((batch, seq, h, self.problem["dim"]), jnp.bfloat16)  # noqa: E731
        heads, kv_heads = self.problem["heads"]
        self.inputs = make(heads), make(kv_heads), make(kv_heads)
        self.run = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))
        self.empty = jax.jit(lambda q, k, v: q + 1)
        self.on_gpu = jax.default_backend() != "cpu"

    def rows(self, calls: int):
        wait = lambda: self.run(*self.inputs).block_until_ready()  # noqa: E731
        empty = median_us(lambda: self.empty(*self.inputs), calls, wait)
        front = median_us(lambda: self.run(*self.inputs), calls, wait)
        yield from pair("forward", "jax", front, "jax:addition", empty, None)


def fingerprint(arms) -> dict:
    machine = {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(),
               "python": platform.python_version(), "load_before": os.getloadavg()[0]}
    if isinstance(arms, TorchArms):
        machine["torch"] = arms.torch.__version__
        machine["gpu"] = arms.torch.cuda.get_device_name() if arms.on_gpu else None
    else:
        machine["jax"] = arms.jax.__version__
        machine["gpu"] = arms.jax.devices()[0].device_kind if arms.on_gpu else None
    return machine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("torch", "jax"))
    parser.add_argument("--device", default="cuda", help="of torch's tensors")
    parser.add_argument("--calls", type=int, default=200, help="in a round")
    parser.add_argument("--commit", default="unknown", help="what stands in the rows")
    parser.add_argument("--out", help="rows; standard output without")
    given = parser.parse_args()
    try:
        import longspan

        arms = (TorchArms if given.framework == "torch" else JaxArms)(given.device)
    except ImportError as error:
        print(f"python_overhead.py: {error}; install longspan and {given.framework}",
              file=sys.stderr)
        return 2
    common = {
        "run_id": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), "commit": given.commit,
        "case": "python overhead",
        "problem": longspan.canonical_problem(longspan.problem_text(**arms.problem)),
        "ranks": 1, "gpus": int(arms.on_gpu),
    }
    machine = fingerprint(arms)
    rows = [{**common, **row, "fingerprint": machine} for row in arms.rows(given.calls)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if given.out:
        with open(given.out, "w", encoding="ascii") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
    broken = [row for row in rows if row.get("bar_us") and row["beyond_us"] > row["bar_us"]]
    for row in broken:
        print(f"{row['arm']} {row['direction']}: {row['beyond_us']:.1f} us beyond {row['beside']}, "
              f"more than {row['bar_us']}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
