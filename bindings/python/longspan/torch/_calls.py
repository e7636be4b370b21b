"""Forward and backward of one plan on tensors [batch, seq, heads, dim] or [tokens, heads, dim]."""

import dataclasses

import torch

from longspan import _native
from longspan.torch._plan import Plan, accumulator


@dataclasses.dataclass(frozen=True)
class Values:
    """What a call brings beside its tensors.

    Attributes:
        scale: factor on q.k.
        softcap: 0: the problem's.
        dropout, seed, offset: of the mask; dropout below 0: the problem's.
        lengths_q, lengths_k: int32 per sequence on the device, for problems of device lengths.
    """

    scale: float
    softcap: float = 0.0
    dropout: float = -1.0
    seed: int = 0
    offset: int = 0
    lengths_q: torch.Tensor | None = None
    lengths_k: torch.Tensor | None = None


def outputs(plan: Plan, q: torch.Tensor):
    """Empty o, lse, largest logits and saved memory. o lies in memory as q where it can."""
    if q.shape[-1] == plan.dim_v:
        o = torch.empty_like(q)
    else:
        o = q.new_empty((*q.shape[:-1], plan.dim_v))
    kind = accumulator(q.dtype)
    lse = torch.empty(q.shape[:-1], dtype=kind, device=q.device)
    max_logit = torch.empty(plan.heads if plan.max_logit else 0, dtype=kind, device=q.device)
    saved = torch.empty(plan.saved_bytes, dtype=torch.uint8, device=q.device)
    return o, lse, max_logit, saved


def run_forward(plan: Plan, q, k, v, sinks, bias, slopes, values: Values):
    """Returns o, lse, max_logit (empty where not asked for) and saved memory. Collective."""
    o, lse, max_logit, saved = outputs(plan, q)
    workspace = plan.workspace(0, q.device)
    _native.forward(
        plan.engine.handle, plan.call, q, k, v, o, lse, values.scale, sinks, slopes, bias,
        max_logit if plan.max_logit else None, values.lengths_q, values.lengths_k, values.softcap,
        values.dropout, values.seed, values.offset, plan.saved_addresses(saved),
        workspace.data_ptr(), workspace.numel(),
    )
    return o, lse, max_logit, saved


def run_backward(plan: Plan, dout, q, k, v, o, lse, saved, sinks, bias, slopes, values: Values):
    """Returns dq, dk, dv, dsinks and dbias (None where there is none). Collective. dsinks and dbias
    are what this rank's pairs contribute."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    kind = accumulator(q.dtype)
    dsinks = None if sinks is None else torch.empty_like(sinks, dtype=kind)
    dbias = None if bias is None else torch.empty(bias.shape, dtype=kind, device=bias.device)
    workspace = plan.workspace(1, q.device)
    _native.backward(
        plan.engine.handle, plan.call, q, k, v, o, lse, dout, dq, dk, dv, values.scale, sinks,
        slopes, bias, dsinks, dbias, values.lengths_q, values.lengths_k, values.softcap,
        values.dropout, values.seed, values.offset, plan.saved_addresses(saved),
        workspace.data_ptr(), workspace.numel(),
    )
    return dq, dk, dv, dsinks, None if dbias is None else dbias.to(bias.dtype)
