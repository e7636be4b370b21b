"""What ranks of a process group do together; test_group.py starts four of them by torchrun. Every
scene compares with one rank or float64; each rank writes what became of its scenes as JSON."""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

import longspan
import ranks
from longspan.torch import Engine, attention, engine_of
from oracle import BARS, Terms, batch_attention, gradients, relative_rms

SCENES = {}


def scene(function):
    SCENES[function.__name__] = function
    return function


def tensors(*shapes, dtype=torch.float32, seed=0):
    """The same on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return [t.requires_grad_() for t in made]


def compare(whole, want, plan, bar, **call):
    """The ranks' results and gradients together against those of `want`, [batch, seq, ...]."""
    q, k, v = whole
    local = [plan.shard(q), plan.shard(k, "k"), plan.shard(v, "k")]
    o = plan.unshard(attention(*local, plan=plan, **call))
    assert relative_rms(o, want) <= bar, f"o of {plan.problem} by {plan.forward}"
    dout = torch.randn(o.shape, generator=torch.Generator().manual_seed(5)).to(o.dtype)
    # Every rank takes the whole o into a loss: the sum over ranks is 4 times that of one.
    mine = torch.autograd.grad(o, whole, dout)
    for gradient, other in zip(mine, gradients(want, dout, whole)):
        dist.all_reduce(gradient)
        assert relative_rms(gradient / dist.get_world_size(), other) <= bar, plan.problem


@scene
def strategies_and_partitions():
    whole = tensors((1, 61, 8, 16), (1, 61, 4, 16), (1, 61, 4, 16))
    want = batch_attention(*whole, Terms(causal=True, window=(40, 0)))[0]
    for partition in ("contiguous", "zigzag", "striped", "balanced"):
        for strategy in ("ring", "all_gather"):
            options = longspan.Options(forward=strategy, backward=strategy, partition=partition)
            plan = engine_of(dist.group.WORLD, options=options).plan(
                dtype="f32", heads=(8, 4), dim=16, lengths=[61], causal=True, window=(40, 0)
            )
            assert (plan.partition, plan.forward[0]) == (partition, strategy)
            compare(whole, want, plan, BARS[torch.float32])


@scene
def head_exchanges():
    whole = tensors((2, 24, 8, 8), (2, 24, 4, 8), (2, 24, 4, 8), dtype=torch.bfloat16)
    want = batch_attention(*whole, Terms(causal=True))[0]
    for forward, backward in (("all_to_all", "all_to_all"), ("ring", "head_parallel")):
        options = longspan.Options(forward=forward, backward=backward)
        plan = engine_of(dist.group.WORLD, options=options).plan(
            dtype="bf16", heads=(8, 4), dim=8, lengths=[24, 24], causal=True
        )
        compare(whole, want, plan, BARS[torch.bfloat16])


@scene
def packed_documents():
    lengths = [7, 0, 40, 13]
    whole = tensors((60, 4, 8), (60, 2, 8), (60, 2, 8))
    parts = [t.split(lengths) for t in whole]
    want = torch.cat([batch_attention(*(p[i][None] for p in parts), Terms(causal=True))[0][0]
                      for i in range(len(lengths)) if lengths[i]])
    plan = engine_of(dist.group.WORLD).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=lengths, causal=True, layout="thd"
    )
    compare(whole, want, plan, BARS[torch.float32])


@scene
def equal_shards_need_no_plan():
    whole = tensors((2, 32, 4, 8), (2, 32, 2, 8), (2, 32, 2, 8), dtype=torch.float64)
    options = longspan.Options(partition="contiguous")
    rank, count = dist.get_rank(), dist.get_world_size()
    local = [t.chunk(count, 1)[rank] for t in whole]
    o = attention(*local, causal=True, group=dist.group.WORLD, options=options)
    want = batch_attention(*whole, Terms(causal=True))[0]
    assert relative_rms(o, want.chunk(count, 1)[rank]) <= 1e-12
    mesh = dist.init_device_mesh("cpu", (count,), mesh_dim_names=("cp",))
    again = attention(*local, causal=True, group=mesh["cp"], options=options)
    assert torch.equal(o, again)


@scene
def sinks_bias_and_dropout():
    q, k, v = tensors((1, 30, 4, 8), (1, 30, 2, 8), (1, 30, 2, 8))
    sinks, bias = tensors((4,), (1, 4, 30, 30), seed=3)
    inputs = [q, k, v, sinks, bias]
    want = batch_attention(q, k, v, Terms(sinks=sinks, bias=bias))[0]
    plan = engine_of(dist.group.WORLD).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=[30], sink="learnable", bias="1,h"
    )
    local = [plan.shard(q), plan.shard(k, "k"), plan.shard(v, "k")]
    o = attention(*local, sinks=sinks, bias=bias, plan=plan)
    dout = torch.randn(want.shape, generator=torch.Generator().manual_seed(5))
    mine = torch.autograd.grad(o, inputs, plan.shard(dout))
    for number, (gradient, other) in enumerate(zip(mine, gradients(want, dout, inputs))):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        assert relative_rms(gradient, other) <= 4e-6, number
    dropped = engine_of(dist.group.WORLD).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=[30], dropout=0.5
    )
    local = [dropped.shard(q), dropped.shard(k, "k"), dropped.shard(v, "k")]
    o = dropped.unshard(attention(*local, plan=dropped, dropout_rng=(9, 2)))
    alone = attention(q, k, v, dropout=0.5, dropout_rng=(9, 2))
    assert relative_rms(o, alone) <= 2e-6
    try:
        attention(*local, plan=dropped)
    except longspan.InvalidArgument as error:
        assert "dropout_rng" in str(error)
    else:
        raise AssertionError("dropout without an agreed mask passed")


@scene
def positions_and_indices():
    plan = engine_of(dist.group.WORLD, options=longspan.Options(partition="zigzag")).plan(
        dtype="f32", heads=(1, 1), dim=8, lengths=[16], causal=True
    )
    rank = dist.get_rank()
    expected = [2 * rank, 2 * rank + 1, 14 - 2 * rank, 15 - 2 * rank]
    assert plan.positions().tolist() == expected == plan.indices().tolist()
    whole = torch.arange(16.0).view(1, 16, 1)
    assert torch.equal(plan.unshard(plan.shard(whole)), whole)


@scene
def max_logit_is_over_all_ranks():
    q, k, v = tensors((1, 21, 4, 8), (1, 21, 2, 8), (1, 21, 2, 8))
    plan = engine_of(dist.group.WORLD).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=[21], causal=True, max_logit=True
    )
    local = [plan.shard(q), plan.shard(k, "k"), plan.shard(v, "k")]
    with torch.no_grad():
        _, largest = attention(*local, plan=plan, return_max_logit=True)
    assert relative_rms(largest, batch_attention(q, k, v, Terms(causal=True))[2]) <= 2e-6


@scene
def compiled_ranks():
    plan = engine_of(dist.group.WORLD).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=[32], causal=True
    )
    whole = tensors((1, 32, 4, 8), (1, 32, 2, 8), (1, 32, 2, 8))
    local = [plan.shard(whole[0]), plan.shard(whole[1], "k"), plan.shard(whole[2], "k")]
    compiled = torch.compile(lambda *t: attention(*t, plan=plan) * 2, fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(*local), attention(*local, plan=plan) * 2)


@scene
def subgroups():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = groups[dist.get_rank() // 2]
    whole = tensors((1, 20, 4, 8), (1, 20, 2, 8), (1, 20, 2, 8), seed=dist.get_rank() // 2)
    plan = engine_of(group).plan(dtype="f32", heads=(4, 2), dim=8, lengths=[20], causal=True)
    local = [plan.shard(whole[0]), plan.shard(whole[1], "k"), plan.shard(whole[2], "k")]
    o = plan.unshard(attention(*local, plan=plan))
    assert relative_rms(o, batch_attention(*whole, Terms(causal=True))[0]) <= 2e-6


@scene
def disagreement_names_the_field():
    engine = Engine(dist.group.WORLD)
    length = 32 if dist.get_rank() else 40
    try:
        engine.plan(dtype="f32", heads=(4, 2), dim=8, lengths=[length])
    except longspan.InvalidArgument as error:
        assert "lengths" in str(error), error
    else:
        raise AssertionError("ranks with different problems went on")


@scene
def late_ranks_are_named():  # the last one: a missed deadline closes gloo's connections
    engine = Engine(dist.group.WORLD, options=longspan.Options(deadline=2.0))
    if dist.get_rank() == 3:
        time.sleep(4)
        return
    try:
        engine.plan(dtype="f32", heads=(4, 2), dim=8, lengths=[32])
    except longspan.PeerLost as error:
        assert "rank" in str(error)
    else:
        raise AssertionError("nobody missed rank 3")


if __name__ == "__main__":
    ranks.play(SCENES, pathlib.Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # transfers are still in flight
