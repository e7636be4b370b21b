"""Slices of iterations: device, host and wall time, eager and replayed."""

import time

import torch


def replays(peer, forward_only):
    """Functions that replay forward and backward as CUDA graphs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            peer.forward()
            if not forward_only:
                peer.backward()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    peer.o = peer.grads = None  # nothing of another stream is freed during a capture
    forward = torch.cuda.CUDAGraph()
    with torch.cuda.graph(forward, capture_error_mode="thread_local"):
        peer.forward()
    if forward_only:
        return forward.replay, None
    backward = torch.cuda.CUDAGraph()
    with torch.cuda.graph(backward, pool=forward.pool(), capture_error_mode="thread_local"):
        peer.backward()
    return forward.replay, backward.replay


class Marks:
    """Events of one slice and the host's times of its calls."""

    def __init__(self):
        self.events = []
        self.host = []

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.events.append(event)

    def call(self, function):
        begin = time.perf_counter()
        function()
        self.host.append((time.perf_counter() - begin) * 1e6)
        self.mark()

    def laps(self):
        return [1e3 * a.elapsed_time(b) for a, b in zip(self.events, self.events[1:])]


def timed_slice(forward, backward, warmup, iterations):
    """`backward` None: forward alone. Iterations are queued without waiting in between."""
    calls = [forward] if backward is None else [forward, backward]
    for _ in range(warmup):
        for call in calls:
            call()
    torch.cuda.synchronize()
    marks = Marks()
    begin = time.perf_counter()
    marks.mark()
    for _ in range(iterations):
        for call in calls:
            marks.call(call)
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begin) * 1e6 / iterations
    laps, count = marks.laps(), len(calls)
    return {
        "forward_us": laps[::count],
        "backward_us": laps[1::2] if count == 2 else None,
        "host_us": {"forward": marks.host[::count],
                    "backward": marks.host[1::2] if count == 2 else None},
        "wall_us": wall,
    }


def slower(slices):
    """Of each iteration the slowest rank."""
    def larger(lists):
        return None if lists[0] is None else [max(values) for values in zip(*lists)]

    host = {side: larger([s["host_us"][side] for s in slices]) for side in ("forward", "backward")}
    return {
        "forward_us": larger([s["forward_us"] for s in slices]),
        "backward_us": larger([s["backward_us"] for s in slices]),
        "host_us": host,
        "wall_us": max(s["wall_us"] for s in slices),
    }
