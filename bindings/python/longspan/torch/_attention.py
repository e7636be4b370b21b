"""The attention function."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from longspan._errors import InvalidArgument
from longspan._options import Options
from longspan._problem import bias_key, number
from longspan.torch import _arguments
from longspan.torch._autograd import attend, attend_plain
from longspan.torch._calls import Values
from longspan.torch._group import Group, process_group
from longspan.torch._plan import Plan
from longspan.torch._traced import plan_of

Lengths: TypeAlias = Sequence[int] | torch.Tensor | None

# The extents to swap for [batch, seq, heads, dim].
_SWAPPED = {"bshd": (), "sbhd": (0, 1), "bhsd": (1, 2), "thd": ()}


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    align: str | None = None,
    window: tuple[int, int] | int | None = None,
    prefix: Sequence[int] | None = None,
    chunk: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | str | None = None,
    alibi: torch.Tensor | bool = False,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    dropout_rng: tuple[int, int] | None = None,
    cu_seqlens: Lengths = None,
    cu_seqlens_kv: Lengths = None,
    lengths: Lengths = None,
    kv_lengths: Lengths = None,
    layout: str = "bshd",
    group: Group = None,
    options: Options | None = None,
    plan: Plan | None = None,
    actual_lengths: torch.Tensor | None = None,
    actual_kv_lengths: torch.Tensor | None = None,
    return_lse: bool = False,
    return_max_logit: bool = False,
) -> Any:
    """Exact attention, softmax(scale q k^T + ...) v, whole or as one rank of a group.

    Under a group q, k and v are this rank's rows (`Plan.shard`) and the call is collective; lengths
    are those over all ranks. Without `lengths` or `cu_seqlens`, ranks hold equal shards of
    sequences that all have one length.

    Args:
        q: [batch, seq, heads, dim] (bshd), [seq, batch, heads, dim] (sbhd),
            [batch, heads, seq, dim] (bhsd) or [tokens, heads, dim] (thd, packed); float64, float32,
            float16 or bfloat16. Under autocast, q, k, v and bias are cast to its type.
        k, v: likewise; heads of q are a multiple of theirs; v may have another dim.
        causal: a query sees no later key.
        align: where the diagonal starts when query and key lengths differ: "top_left" (query 0 with
            key 0) or "bottom_right" (last with last, FlashAttention's meaning of causal). Must be
            given then.
        window: (left, right) keys beside a query's own that it sees; -1 is unbounded; one number
            is both.
        prefix: per sequence, the first keys that every query sees.
        chunk: queries see only keys of their own chunk of this many tokens.
        scale: factor on q k^T; 1/sqrt(dim) without.
        softcap: x becomes softcap tanh(x / softcap); 0 is off.
        sinks: one extra logit in each denominator: values [heads], with gradient, or "off_by_one".
        alibi: True for the slopes of the ALiBi paper, or slopes [heads], without gradient.
        bias: added to the scores, [batch or 1, heads or 1, seq_q, seq_k] or [1, 1, 1, seq_k] of the
            whole problem, on every rank; with gradient.
        dropout: probability of dropping a probability. The mask depends on (seed, offset, sequence,
            head, query, key) alone.
        dropout_rng: (seed, offset), the same on all ranks. Without, one rank alone draws a seed
            from torch's CPU generator; ranks of a group must give it.
        cu_seqlens, cu_seqlens_kv: [sequences + 1] cumulative lengths of packed tensors, over all
            ranks: integers or a tensor (one on a GPU is waited for; prefer a plan).
        lengths, kv_lengths: per sequence, instead of cu_seqlens; with bshd: valid tokens of each
            batch entry, the rest is padding.
        layout: bshd, sbhd, bhsd or thd.
        group: ProcessGroup or one-dimensional DeviceMesh; None computes alone.
        options: strategies, providers, partition; see `longspan.Options`.
        plan: a prepared problem (`Engine.plan`) in the place of masks, lengths, group and options:
            the fast path.
        actual_lengths, actual_kv_lengths: int32 [sequences] on the device, for plans with
            device_lengths.
        return_lse: also return the logarithm of each row's sum, float32 (float64 for float64),
            [batch, seq, heads] or [tokens, heads]; -inf where a query sees no key. No gradient.
        return_max_logit: also return the largest visible score of each head over all ranks. No
            gradient.

    Returns:
        o, in q's layout and type with v's dim; with lse and max_logit a tuple (o, lse, max_logit)
        of those asked for. Queries without keys, and padding, are zero. Gradients of sinks and bias
        are what this rank's pairs contribute: their sum over ranks is the gradient, as with every
        parameter that all ranks hold.

    Raises:
        longspan.InvalidArgument: a value that cannot be; the message says which and what to do.
        longspan.Unsupported: nobody offers the problem; ``declines`` and the message say why.
        longspan.PeerLost: another rank died or did not answer within ``options.deadline``.
    """
    settled = causal or chunk or not (
        align is window is prefix is cu_seqlens is cu_seqlens_kv is lengths is kv_lengths is group
        is options is None
    )
    if plan is not None and settled:
        raise InvalidArgument(
            "a mask, lengths, a group or options are given beside a plan, which has settled them: "
            + plan.problem
        )
    plain = (
        alibi is False
        and (scale is sinks is bias is dropout_rng is actual_lengths is actual_kv_lengths is None)
        and softcap == 0 and not (dropout or return_lse or return_max_logit)
    )
    if (
        type(plan) is Plan and plain and plan.plain and layout == "bshd"
        and type(q) is type(k) is type(v) is torch.Tensor
        and q.dim() == k.dim() == v.dim() == plan.extents
        and not torch._C._is_any_autocast_enabled()
    ):
        return attend_plain(plan, q, k, v)
    swap = _SWAPPED.get(layout)
    if swap is None:
        raise InvalidArgument(f"layout is '{layout}'; it must be one of {', '.join(_SWAPPED)}")
    _arguments.check_tensors(layout, plan, q, k, v)
    slopes, sink = _arguments.with_alibi(alibi), _arguments.sink_key(sinks)
    _arguments.check_sides(q, sinks=sinks, bias=bias, alibi=alibi)
    q, k, v, bias = _arguments.autocast(q, k, v, bias)
    if swap:
        q, k, v = q.transpose(*swap), k.transpose(*swap), v.transpose(*swap)
    if plan is None:
        ranks = 1 if group is None else process_group(group).size()
        text = _arguments.problem_of(
            q, k, v,
            _arguments.lengths_keys(
                q, k, lengths, kv_lengths, cu_seqlens, cu_seqlens_kv, layout == "thd", ranks
            ),
            causal=causal, align=align, window=window, prefix=prefix, chunk=chunk, softcap=softcap,
            alibi=slopes, bias=bias_key(bias),
            sink=sink, dropout=dropout, max_logit=return_max_logit,
        )
        plan = plan_of(text, group, q.device, options or Options())
    elif alibi is True or isinstance(sinks, str) or return_max_logit:
        _arguments.check_against_plan(plan, alibi, sinks, return_max_logit)
    if plain and plan.plain:
        o = attend_plain(plan, q, k, v)
        return o.transpose(*swap) if swap else o
    scale = _arguments.factor(scale)
    softcap = number(softcap, "softcap")
    dropout = dropout or plan.dropout
    seed, offset = _arguments.rng(dropout_rng, plan.ranks) if dropout else (0, 0)
    values = Values(
        plan.scale if scale is None else scale, softcap, dropout or -1.0, seed, offset,
        actual_lengths, actual_kv_lengths,
    )
    o, lse, max_logit = attend(
        plan, q, k, v, _arguments.per_head(sinks, q),
        _arguments.bias_rows(bias), _arguments.per_head(alibi, q), values,
    )
    if swap:
        o = o.transpose(*swap)
    if not (return_lse or return_max_logit):
        return o
    return (o,) + (lse,) * return_lse + (max_logit,) * return_max_logit
