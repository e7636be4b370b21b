"""torch's modes on one GPU: graphs, streams, compile, checkpoints, autocast, memory."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import longspan
from longspan.torch import attention, engine_of
from on_gpu import BARS, DEVICE, judge, qkv, random_like, truth
from oracle import Terms, relative_rms

CAUSAL = Terms(causal=True)
pytestmark = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")


def halves(**shape):
    return qkv(dtype=torch.bfloat16, **shape)


def step(inputs, dout, **call):
    """o and the gradients of all inputs."""
    o = attention(*inputs, **call)
    return [o, *torch.autograd.grad(o, inputs, dout)]


def check_steps(mine, theirs):
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert torch.equal(one, other), f"result {number}: {relative_rms(one, other)}"


GRAPHED = {
    "cudnn": (torch.bfloat16, {"causal": True}),
    "reference": (torch.float32, {"causal": True, "softcap": 3.0}),
    "dropout": (torch.float32, {"dropout": 0.3, "dropout_rng": (4, 1)}),
}


@pytest.mark.parametrize("name", GRAPHED)
def test_graphs_replay_with_new_inputs(name):
    dtype, call = GRAPHED[name]
    torch.use_deterministic_algorithms(True)
    try:
        inputs = qkv(dtype=dtype)
        dout = random_like(inputs[0])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(inputs, dout, **call)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(inputs, dout, **call)
        for seed in (1, 2):
            fresh = qkv(dtype=dtype, seed=seed)
            with torch.no_grad():
                for tensor, other in zip(inputs, fresh):
                    tensor.copy_(other)
            graph.replay()
            check_steps(captured, step(fresh, dout, **call))
    finally:
        torch.use_deterministic_algorithms(False)


def test_device_lengths_under_graphs():
    plan = engine_of(device=DEVICE).plan(
        dtype="bf16", heads=(4, 2), dim=64, lengths=[130, 130], causal=True, device_lengths=True
    )
    inputs = halves()
    lengths = torch.tensor([130, 64], dtype=torch.int32, device=DEVICE)
    call = functools.partial(
        attention, *inputs, plan=plan, actual_lengths=lengths, actual_kv_lengths=lengths
    )
    with torch.no_grad():
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = call()
        for second in (64, 130, 1):
            lengths.copy_(torch.tensor([130, second]))
            graph.replay()
            rows = [tensor[1:, :second] for tensor in inputs]
            assert relative_rms(o[1:, :second], truth(*rows, CAUSAL)[0]) <= BARS[torch.bfloat16]
            assert not o[1, second:].any()


def test_a_cold_call_is_not_captured():
    inputs = halves(sq=77)
    plan = engine_of(device=DEVICE).plan(
        dtype="bf16", heads=(4, 2), dim=64, lengths=[77, 77], causal=True
    )
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(longspan.InvalidArgument, match="cold call is being captured"):
        with torch.no_grad(), torch.cuda.graph(graph):
            attention(*inputs, plan=plan)
    with torch.no_grad():
        o = attention(*inputs, plan=plan)  # and it goes on
    assert relative_rms(o, truth(*inputs, CAUSAL)[0]) <= BARS[torch.bfloat16]


def test_side_streams_and_reused_memory():
    """Memory that torch hands out again at once is not read or written by earlier calls."""
    wanted = [step(halves(seed=seed), random_like(halves()[0]), causal=True) for seed in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(10):
        results = []
        for seed, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                inputs = halves(seed=seed)
                results.append(step(inputs, random_like(inputs[0]), causal=True))
                del inputs
        torch.cuda.synchronize()
        for mine, theirs in zip(results, wanted):
            for one, other in zip(mine, theirs):
                assert relative_rms(one, other) <= 1e-4


def test_calls_do_not_wait_for_the_device():
    inputs = halves()
    dout = random_like(inputs[0])
    step(inputs, dout, causal=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    step(inputs, dout, causal=True)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_memory_is_torchs_and_goes_back():
    inputs = halves(sq=2048, heads=(8, 2))
    dout = random_like(inputs[0])
    results = step(inputs, dout, causal=True)
    torch.cuda.synchronize()
    plan = engine_of(device=DEVICE).plan(
        dtype="bf16", heads=(8, 2), dim=64, lengths=[2048, 2048], causal=True
    )
    del results
    before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    results = step(inputs, dout, causal=True)
    torch.cuda.synchronize()
    held = sum(tensor.nbytes for tensor in results)
    lse = inputs[0].numel() // 64 * 4
    most = held + lse + plan.saved_bytes + max(plan.workspace_bytes)
    assert torch.cuda.max_memory_allocated() - before <= most + (1 << 20)
    assert torch.cuda.memory_allocated() - before <= held + 8192
    for _ in range(20):
        step(inputs, dout, causal=True)
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] <= 64 << 20


def test_compiled_once_for_new_data():
    compiled = torch.compile(lambda *x: attention(*x, causal=True) * 2, fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for seed in range(3):
        inputs = halves(seed=seed)
        judge(compiled(*inputs) / 2, truth(*inputs, CAUSAL)[0], inputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_compiled_into_graphs():
    compiled = torch.compile(
        lambda *x: attention(*x, causal=True) + 1, fullgraph=True, mode="reduce-overhead"
    )
    inputs = halves()
    with torch.no_grad():
        want = attention(*inputs, causal=True) + 1
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(*inputs).clone(), want)


def test_checkpoint_replays_the_mask():
    inputs = qkv()
    run = functools.partial(attention, dropout=0.4)

    def gradients(call):
        torch.manual_seed(11)
        return torch.autograd.grad(call().square().sum(), inputs)

    again = gradients(lambda: checkpoint(run, *inputs, use_reentrant=False))
    for one, other in zip(gradients(lambda: run(*inputs)), again):
        assert relative_rms(one, other) <= 1e-6


def test_autocast():
    inputs = qkv()
    with torch.autocast("cuda", torch.bfloat16):
        o = attention(*inputs, causal=True)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert inputs[0].grad.dtype == torch.float32
    rounded = [tensor.to(torch.bfloat16) for tensor in inputs]
    assert relative_rms(o, truth(*rounded, CAUSAL)[0]) <= BARS[torch.bfloat16]


def test_deterministic_algorithms_repeat_bits():
    inputs = halves(sq=1000, heads=(8, 1))
    dout = random_like(inputs[0])
    torch.use_deterministic_algorithms(True)
    try:
        first = step(inputs, dout, causal=True)
        for _ in range(5):
            check_steps(step(inputs, dout, causal=True), first)
    finally:
        torch.use_deterministic_algorithms(False)
