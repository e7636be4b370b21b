"""Forward and backward of one plan on tensors [batch, seq, heads, dim] or [tokens, heads, dim]."""

from typing import NamedTuple

import torch

from longspan import _native
from longspan.torch._plan import Plan


class Values(NamedTuple):
    """What a call brings beside its tensors: the factor on q.k; softcap, 0 for the problem's; the
    dropout mask, below 0 for the problem's; int32 lengths of each sequence for problems of device
    lengths."""

    scale: float
    softcap: float = 0.0
    dropout: float = -1.0
    seed: int = 0
    offset: int = 0
    lengths_q: torch.Tensor | None = None
    lengths_k: torch.Tensor | None = None


def _bytes(count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=like.device)


def _empty_o(plan: Plan, q: torch.Tensor) -> torch.Tensor:
    """It lies in memory as q where it can."""
    if plan.dim == plan.dim_v:
        return torch.empty_like(q)
    return q.new_empty((*q.shape[:-1], plan.dim_v))


def outputs(plan: Plan, q: torch.Tensor):
    """Empty o, lse, largest logits and saved memory; None for what the plan has not."""
    o = _empty_o(plan, q)
    lse = torch.empty(q.shape[:-1], dtype=plan.accumulator, device=q.device)
    max_logit = lse.new_empty(plan.heads) if plan.max_logit else None
    return o, lse, max_logit, _bytes(plan.saved_bytes, q) if plan.saved_bytes else None


def run_forward(plan: Plan, q, k, v, sinks, bias, slopes, values: Values):
    """Returns o, lse, max_logit and saved memory (None as in `outputs`). Collective."""
    o, lse, max_logit, saved = results = outputs(plan, q)
    scale, softcap, dropout, seed, offset, lengths_q, lengths_k = values
    workspace = _bytes(plan.workspace_bytes[0], q)
    _native.forward(
        plan.engine.handle, plan.call, q, k, v, o, lse, scale, sinks, slopes, bias, max_logit,
        lengths_q, lengths_k, softcap, dropout, seed, offset,
        0 if saved is None else saved.data_ptr(), workspace.data_ptr(), plan.workspace_bytes[0],
    )
    return results


def run_plain(plan: Plan, q, k, v) -> torch.Tensor:
    """o of a plain plan, by the fewest steps. Collective."""
    o, kept, workspace = _empty_o(plan, q), plan.kept_bytes, plan.workspace_bytes[0]
    block = plan.memory(kept + workspace)
    address = block.data_ptr()
    _native.forward_plain(
        plan.engine.handle, plan.call, q, k, v, o, address, address + kept, workspace
    )
    return o


def run_plain_keeping(plan: Plan, q, k, v):
    """o of a plain plan, and what backward takes. Collective."""
    o, kept, workspace = _empty_o(plan, q), plan.memory(plan.kept_bytes), plan.workspace_bytes[0]
    block = plan.memory(workspace)
    _native.forward_plain(
        plan.engine.handle, plan.call, q, k, v, o, kept.data_ptr(), block.data_ptr(), workspace
    )
    return o, kept


def run_plain_backward(plan: Plan, dout, q, k, v, o, kept):
    """dq, dk and dv of a plain plan. Collective."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    workspace = plan.workspace_bytes[1]
    block = plan.memory(workspace)
    _native.backward_plain(
        plan.engine.handle, plan.call, q, k, v, o, dout, dq, dk, dv, kept.data_ptr(),
        block.data_ptr(), workspace,
    )
    return dq, dk, dv


def run_backward(plan: Plan, dout, q, k, v, o, lse, saved, sinks, bias, slopes, values: Values):
    """Returns dq, dk, dv, dsinks and dbias (None where there is none). Collective. dsinks and dbias
    are what this rank's pairs contribute."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    kind = plan.accumulator
    dsinks = None if sinks is None else torch.empty_like(sinks, dtype=kind)
    dbias = None if bias is None else torch.empty(bias.shape, dtype=kind, device=bias.device)
    scale, softcap, dropout, seed, offset, lengths_q, lengths_k = values
    workspace = _bytes(plan.workspace_bytes[1], q)
    _native.backward(
        plan.engine.handle, plan.call, q, k, v, o, lse, dout, dq, dk, dv, scale, sinks, slopes,
        bias, dsinks, dbias, lengths_q, lengths_k, softcap, dropout, seed, offset,
        0 if saved is None else saved.data_ptr(), workspace.data_ptr(), plan.workspace_bytes[1],
    )
    return dq, dk, dv, dsinks, None if dbias is None else dbias.to(bias.dtype)
