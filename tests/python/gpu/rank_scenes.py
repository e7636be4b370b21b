"""What four ranks do together on one GPU, as processes that see each other's memory; test_ranks_gpu
starts them. Results are compared with float64."""

import pathlib
import sys

import torch
import torch.distributed as dist

import longspan

_HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent)]
import ranks  # noqa: E402
from longspan.torch import attention, engine_of  # noqa: E402
from on_gpu import BARS, DEVICE, qkv, random_like, tensors, truth  # noqa: E402
from oracle import Terms, gradients, relative_rms  # noqa: E402

SCENES = {}
BF16 = torch.bfloat16


def scene(function):
    SCENES[function.__name__] = function
    return function


def plan_of(forward="auto", backward="auto", *, dtype="bf16", lengths=(210,), **problem):
    options = longspan.Options(forward=forward, backward=backward)
    return engine_of(dist.group.WORLD, DEVICE, options).plan(
        dtype=dtype, heads=(8, 4), dim=64, lengths=lengths, **problem
    )


def shards(plan, whole):
    return [plan.shard(tensor, side) for tensor, side in zip(whole, "qkk")]


def compare(plan, whole, want, **call):
    """The ranks' o and gradients together against ``want``."""
    bar = 1.05 * BARS[whole[0].dtype]
    o = plan.unshard(attention(*shards(plan, whole), plan=plan, **call))
    assert relative_rms(o, want) <= bar, f"o: {relative_rms(o, want)}; {plan.forward}"
    dout = random_like(o)
    # Every rank takes the whole o into a loss: the sum over ranks is 4 times that of one.
    mine = torch.autograd.grad(o, whole, dout)
    for number, (gradient, other) in enumerate(zip(mine, gradients(want, dout, whole))):
        gradient = gradient.float()
        dist.all_reduce(gradient)
        error = relative_rms(gradient / dist.get_world_size(), other)
        assert error <= bar, f"gradient {number}: {error}; {plan.backward}"


def exchanged(forward: str, backward: str, dtype: torch.dtype = BF16):
    whole = qkv(1, 210, (8, 4), dtype=dtype)
    plan = plan_of(forward, backward, dtype="bf16" if dtype == BF16 else "f32", causal=True)
    assert (plan.forward[0], plan.backward[0]) == (forward, backward)
    compare(plan, whole, truth(*whole, Terms(causal=True))[0])


@scene
def ring():
    exchanged("ring", "ring")
    exchanged("ring", "ring", torch.float32)


@scene
def all_gather():
    exchanged("all_gather", "all_gather")


@scene
def all_to_all():
    exchanged("all_to_all", "all_to_all")


@scene
def hybrid():
    exchanged("hybrid", "hybrid")


@scene
def head_parallel():
    exchanged("ring", "head_parallel")


@scene
def automatic():
    plan = plan_of(causal=True)
    whole = qkv(1, 210, (8, 4), dtype=BF16)
    compare(plan, whole, truth(*whole, Terms(causal=True))[0])


@scene
def packed_documents():
    lengths = [70, 0, 129, 1]
    whole = tensors((200, 8, 64), (200, 4, 64), (200, 4, 64), dtype=BF16)
    parts = zip(*(tensor.split(lengths) for tensor in whole))
    want = torch.cat([truth(*(p[None] for p in part), Terms(causal=True))[0][0]
                      for part, length in zip(parts, lengths) if length])
    compare(plan_of(lengths=lengths, causal=True, layout="thd"), whole, want)


@scene
def dropout_is_that_of_one_rank():
    whole = qkv(1, 210, (8, 4))
    plan = plan_of("ring", "ring", dtype="f32", dropout=0.3)
    o = plan.unshard(attention(*shards(plan, whole), plan=plan, dropout_rng=(9, 2)))
    alone = attention(*whole, dropout=0.3, dropout_rng=(9, 2))
    assert relative_rms(o, alone) <= 4e-6


@scene
def calls_follow_each_other_without_waiting():
    plan = plan_of("ring", "ring", causal=True)
    whole = qkv(1, 210, (8, 4), dtype=BF16)
    local = [tensor.detach() for tensor in shards(plan, whole)]
    with torch.no_grad():
        results = [attention(*local, plan=plan) for _ in range(20)]
    want = truth(*whole, Terms(causal=True))[0]
    for o in results:
        assert relative_rms(plan.unshard(o), want) <= 1.05 * BARS[BF16]


@scene
def a_side_stream():
    if DEVICE.type != "cuda":
        return
    plan = plan_of("all_gather", "all_gather", causal=True)
    whole = qkv(1, 210, (8, 4), dtype=BF16)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compare(plan, whole, truth(*whole, Terms(causal=True))[0])
    torch.cuda.current_stream().wait_stream(stream)


@scene
def graphs():
    """All ranks capture the same calls and replay them equally often."""
    if DEVICE.type != "cuda":
        return
    plan = plan_of("ring", "ring", causal=True)
    whole = qkv(1, 210, (8, 4), dtype=BF16)
    local = [tensor.detach() for tensor in shards(plan, whole)]
    with torch.no_grad():
        attention(*local, plan=plan)
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            o = attention(*local, plan=plan)
        for seed in (1, 2):
            fresh = qkv(1, 210, (8, 4), dtype=BF16, seed=seed)
            for tensor, other in zip(local, shards(plan, fresh)):
                tensor.copy_(other)
            torch.cuda.synchronize()
            dist.barrier()
            graph.replay()
            torch.cuda.synchronize()
            whole_o = plan.unshard(o.clone())
            error = relative_rms(whole_o, truth(*fresh, Terms(causal=True))[0])
            assert error <= 1.05 * BARS[BF16], error
        dist.barrier()


if __name__ == "__main__":
    ranks.play(SCENES, pathlib.Path(sys.argv[1]))
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
