"""From whole tensors to a rank's rows and back, differentiable."""

import math

import torch
import torch.distributed as dist

from longspan import _native
from longspan._errors import InvalidArgument


def _check_rows(tensor: torch.Tensor, packed: bool, expected: tuple[int, ...], what: str) -> None:
    given = tuple(tensor.shape[: len(expected)])
    if given != expected:
        names = "[tokens, ...]" if packed else "[batch, seq, ...]"
        raise InvalidArgument(
            f"the {what} tensor begins with extents {given}; this problem's is {names} with "
            f"{expected}"
        )


def _whole_shape(plan, side: str) -> tuple[int, ...]:
    if side not in plan.tokens:
        raise InvalidArgument(f"side is {side!r}; it must be 'q' (also o) or 'k' (also v)")
    tokens = plan.tokens[side]
    return (tokens,) if plan.packed else (plan.sequences, tokens // plan.sequences)


def _local_shape(plan, side: str) -> tuple[int, ...]:
    batch, seq = plan.local_shape(side)
    return (seq,) if plan.packed else (batch, seq)


def _gathered(plan, rows: torch.Tensor, side: str) -> torch.Tensor:
    """All ranks' rows, rank by rank. Ranks' rows may differ in number: they are padded to move."""
    counts = [math.prod(_native.shard_shape(plan.call, side, r)) for r in range(plan.engine.ranks)]
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=plan.engine.group)
    return torch.cat([part[:count] for part, count in zip(parts, counts)])


class _Unshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, plan, side):
        ctx.plan, ctx.side = plan, side
        if plan.engine.group is not None:
            rows = _gathered(plan, rows, side)
        return rows.index_select(0, plan.rows_of(side, rows.device)[1])

    @staticmethod
    def backward(ctx, gradient):
        plan = ctx.plan
        if plan.engine.group is not None:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=plan.engine.group)
        own = plan.rows_of(ctx.side, gradient.device)[0]
        return gradient.index_select(0, own), None, None


def shard(plan, whole: torch.Tensor, side: str) -> torch.Tensor:
    shape = _whole_shape(plan, side)
    _check_rows(whole, plan.packed, shape, "whole")
    rows = whole.flatten(0, len(shape) - 1)
    own = rows.index_select(0, plan.rows_of(side, whole.device)[0])
    return own.unflatten(0, _local_shape(plan, side))


def unshard(plan, local: torch.Tensor, side: str) -> torch.Tensor:
    shape = _local_shape(plan, side)
    _check_rows(local, plan.packed, shape, "local")
    rows = _Unshard.apply(local.flatten(0, len(shape) - 1), plan, side)
    return rows.unflatten(0, _whole_shape(plan, side))
