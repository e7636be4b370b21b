"""What four ranks of a training job do together, attention inside a group of two of them; as
group_scenes.py, started by test_training.py."""

import functools
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import longspan
import ranks
from longspan.torch import Plan, attention, engine_of
from oracle import relative_rms

SCENES = {}
HEADS, DIM, SEQ = 4, 8, 26
WIDTH = HEADS * DIM
BAR = 4e-6


def scene(function):
    SCENES[function.__name__] = function
    return function


def _mesh(first: str):
    """2 x 2 ranks: the outer dimension by its name, and "context"."""
    return dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=(first, "context"))


mesh = functools.cache(_mesh)


def plan_of(group, partition="zigzag"):
    options = longspan.Options(partition=partition)
    return engine_of(group, options=options).plan(
        dtype="f32", heads=(HEADS, HEADS), dim=DIM, lengths=[SEQ], causal=True
    )


class Block(torch.nn.Module):
    """Attention and a residual; alone where there is no plan."""

    def __init__(self, plan=None):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.plan = plan

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, DIM)).unbind(-3)
        o = attention(q, k, v, plan=self.plan) if self.plan else attention(q, k, v, causal=True)
        return x + self.out(o.flatten(-2))


def blocks(count: int, plan=None) -> torch.nn.Sequential:
    """The same weights on all ranks, with and without a plan."""
    torch.manual_seed(3)
    return torch.nn.Sequential(*(Block(plan) for _ in range(count)))


def sequences(count: int, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, SEQ, WIDTH, generator=generator)


def gradients_alone(count: int, x: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """Of the mean loss over all sequences, on one device."""
    model = blocks(count)
    loss(model(x), targets).backward()
    return [p.grad for p in model.parameters()]


def loss(y, targets):
    """A share of the mean over 4 sequences."""
    return (y - targets).square().sum() / (4 * SEQ * WIDTH)


def compare(mine, want) -> None:
    for number, (one, other) in enumerate(zip(mine, want, strict=True)):
        assert relative_rms(one, other) <= BAR, f"parameter {number}"


def train_sharded(model, data_rank: int, plan, x, targets) -> None:
    """Two micro steps, so that gradients accumulate and parameters are gathered anew."""
    for sequence in (2 * data_rank, 2 * data_rank + 1):
        own = slice(sequence, sequence + 1)
        y = model(plan.shard(x[own]))
        (4 * loss(y, plan.shard(targets[own]))).backward()  # FSDP takes the mean over 4 ranks


@scene
def fsdp_over_data_and_context():
    x, targets = sequences(4), sequences(4, seed=1)
    want = gradients_alone(2, x, targets)
    grid = mesh("data")
    plan = plan_of(grid["context"])
    for over in (grid, grid["data", "context"]._flatten("all")):
        # Two dimensions: sharded over context, replicated over data. One: sharded over all four.
        model = blocks(2, plan)
        for block in model:
            fully_shard(block, mesh=over)
        fully_shard(model, mesh=over)
        train_sharded(model, grid["data"].get_local_rank(), plan, x, targets)
        compare([p.grad.full_tensor() for p in model.parameters()], want)


@scene
def fsdp_with_selective_checkpoints():
    x, targets = sequences(4), sequences(4, seed=1)
    want = gradients_alone(1, x, targets)
    grid = mesh("data")
    plan = plan_of(grid["context"])
    recomputed = []

    def policy(context, operator, *args, **kwargs):
        if operator is torch.ops.longspan.attention.default:
            recomputed.append(context.is_recompute)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    model = blocks(1, plan)
    block = model[0]
    inner = block.forward
    block.forward = lambda x: checkpoint(inner, x, use_reentrant=False, context_fn=contexts)
    fully_shard(model, mesh=grid)
    train_sharded(model, grid["data"].get_local_rank(), plan, x, targets)
    compare([p.grad.full_tensor() for p in model.parameters()], want)
    assert recomputed.count(False) == 2 and recomputed.count(True) == 2


def piped(schedule_of, stages_a_rank: int) -> None:
    """A pipeline of two ranks, each with a context rank beside it, against one device."""
    x, targets = sequences(4), sequences(4, seed=1)
    count = 2 * stages_a_rank
    want = gradients_alone(count, x, targets)
    grid = mesh("pipe")
    place, group = grid["pipe"].get_local_rank(), grid["pipe"].get_group()
    plan = plan_of(grid["context"])
    model = blocks(count, plan)
    own = [place + 2 * i for i in range(stages_a_rank)]
    local = [plan.shard(t[i : i + 1]) for t in (x, targets) for i in range(4)]
    micro, wanted = torch.cat(local[:4]), torch.cat(local[4:])
    made = [PipelineStage(model[i], i, count, torch.device("cpu"), group=group) for i in own]
    schedule = schedule_of(made)
    arguments = (micro,) if place == 0 else ()
    last = {"target": wanted} if place == 1 else {}
    schedule.step(*arguments, **last)
    mine, others = [], []
    for i in own:
        for p, other in zip(model[i].parameters(), want[4 * i : 4 * i + 4], strict=True):
            dist.all_reduce(p.grad, group=grid["context"].get_group())
            mine.append(p.grad)
            others.append(other)
    compare(mine, others)


def one_stage(kind):
    return lambda stages: kind(stages[0], 4, loss_fn=loss, scale_grads=False)


@scene
def pipeline_with_all_forwards_first():
    piped(one_stage(ScheduleGPipe), 1)


@scene
def pipeline_of_one_forward_and_one_backward():
    piped(one_stage(Schedule1F1B), 1)


@scene
def interleaved_pipeline():
    make = functools.partial(ScheduleInterleaved1F1B, loss_fn=loss, scale_grads=False)
    piped(lambda stages: make(stages, 4), 2)


@scene
def backwards_in_any_order():
    """What forward keeps belongs to its own call."""
    plan = plan_of(mesh("pipe")["context"])
    inputs = [sequences(1, seed).unflatten(-1, (HEADS, DIM)).requires_grad_() for seed in range(3)]
    local = [plan.shard(t) for t in inputs]
    plain = [torch.autograd.grad(attention(t, t, t, plan=plan).square().sum(), t) for t in local]
    outputs = [attention(t, t, t, plan=plan).square().sum() for t in local]
    for i in (1, 0, 2):
        assert torch.equal(torch.autograd.grad(outputs[i], local[i])[0], plain[i][0])


@scene
def plans_come_from_bytes():
    group = mesh("data")["context"]
    plan = plan_of(group)
    data = plan.to_bytes()
    every = [None] * 4
    dist.all_gather_object(every, data)
    assert all(other == data for other in every)
    again = Plan.from_bytes(data, group)
    assert again.to_bytes() == data and again.forward[1] == "recorded"
    x = plan.shard(sequences(1).unflatten(-1, (HEADS, DIM)))
    assert torch.equal(attention(x, x, x, plan=plan), attention(x, x, x, plan=again))
    other = plan_of(group, "striped").to_bytes()
    whole = group.get_local_rank() == 0
    try:
        Plan.from_bytes(other if whole else other[1:], group)
    except longspan.InvalidArgument as error:
        assert ("rank 1 could not" if whole else "no JSON") in str(error), error
    else:
        raise AssertionError("a damaged plan was loaded")


if __name__ == "__main__":
    ranks.play(SCENES, pathlib.Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads of the process groups
