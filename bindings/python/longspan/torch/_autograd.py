"""Attention with gradients: an autograd function for eager mode, a registered operator for
torch.compile, fake tensors and dispatch modes (selective checkpointing, tracing)."""

import torch
from torch._C._functorch import unwrap_if_dead
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from longspan._errors import Unsupported
from longspan.torch import _transforms
from longspan.torch._calls import (
    Values,
    outputs,
    run_backward,
    run_forward,
    run_plain,
    run_plain_backward,
    run_plain_keeping,
)
from longspan.torch._plan import Plan
from longspan.torch._traced import plan_numbered, tracing
from longspan.torch._transforms import dense


def _check_backward(plan: Plan) -> None:
    if plan.backward is None:
        raise Unsupported(
            "the plan is for forward alone (backward='none'), but a gradient is asked for; use "
            "options without it, or torch.no_grad()"
        )


def _check_tangents(inputs) -> None:
    if forward_ad._current_level < 0:
        return
    if any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in inputs):
        _transforms.refuse_tangents()


class Attention(torch.autograd.Function):
    """For eager mode. lse and max_logit carry no gradient."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, bias, slopes, plan, values):
        o, lse, max_logit, saved = run_forward(plan, q, k, v, sinks, bias, slopes, values)
        ctx.save_for_backward(q, k, v, o, lse, saved, sinks, bias, slopes)
        ctx.plan, ctx.values = plan, values
        ctx.mark_non_differentiable(*(s for s in (lse, max_logit) if s is not None))
        ctx.set_materialize_grads(False)
        return o, lse, max_logit

    @staticmethod
    def backward(ctx, dout, _dlse, _dmax):
        if dout is None:
            return (None,) * 8
        gradients = _transforms.backward(
            run_backward, ctx.plan, dense(dout), *ctx.saved_tensors, ctx.values
        )
        return (*gradients, None, None, None)


class PlainAttention(torch.autograd.Function):
    """The same for q, k, v and o of a plain plan alone, which costs the host less."""

    @staticmethod
    def forward(ctx, q, k, v, plan):
        o, kept = run_plain_keeping(plan, q, k, v)
        ctx.save_for_backward(q, k, v, o, kept)
        ctx.plan = plan
        return o

    @staticmethod
    def backward(ctx, dout):
        gradients = _transforms.backward(
            run_plain_backward, ctx.plan, dense(dout), *ctx.saved_tensors
        )
        return (*gradients, None)


# Without what Function.apply does for functorch's transforms, of which attend_plain sees to it that
# there are none.
_apply_plain = super(torch.autograd.Function, PlainAttention).apply


torch.library.define(
    "longspan::attention",
    "(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor? bias, Tensor? slopes, Tensor? lengths_q,"
    " Tensor? lengths_k, int plan, float scale, float softcap, float dropout, SymInt seed,"
    " SymInt offset)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "longspan::attention_backward",
    "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor saved, Tensor? sinks,"
    " Tensor? bias, Tensor? slopes, Tensor? lengths_q, Tensor? lengths_k, int plan, float scale,"
    " float softcap, float dropout, SymInt seed, SymInt offset)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def _tensors(results, like: torch.Tensor):
    """Operators return tensors alone: empty ones in the place of None."""
    return tuple(like.new_empty(0) if result is None else result for result in results)


@torch.library.impl("longspan::attention", ("cpu", "cuda"))
def _forward_op(q, k, v, sinks, bias, slopes, lengths_q, lengths_k, plan, *values):
    with_lengths = Values(*values, lengths_q, lengths_k)
    results = run_forward(plan_numbered(plan), q, k, v, sinks, bias, slopes, with_lengths)
    return _tensors(results, q)


@torch.library.register_fake("longspan::attention")
def _forward_fake(q, k, v, sinks, bias, slopes, lengths_q, lengths_k, plan, *values):
    return _tensors(outputs(plan_numbered(plan), q), q)


@torch.library.impl("longspan::attention_backward", ("cpu", "cuda"))
def _backward_op(
    dout, q, k, v, o, lse, saved, sinks, bias, slopes, lengths_q, lengths_k, plan, *values
):
    with_lengths = Values(*values, lengths_q, lengths_k)
    kept = saved if saved.numel() else None
    gradients = run_backward(
        plan_numbered(plan), dense(dout), q, k, v, o, lse, kept, sinks, bias, slopes, with_lengths
    )
    return _tensors(gradients, q)


@torch.library.register_fake("longspan::attention_backward")
def _backward_fake(
    dout, q, k, v, o, lse, saved, sinks, bias, slopes, lengths_q, lengths_k, plan, *values
):
    dbias = None if bias is None else torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    dsinks = None if sinks is None else torch.empty_like(sinks)
    return _tensors(
        (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dsinks, dbias), q
    )


def _save(ctx, inputs, output):
    q, k, v, sinks, bias, slopes, lengths_q, lengths_k, plan, *values = inputs
    o, lse, max_logit, saved = output
    ctx.mark_non_differentiable(lse, max_logit, saved)
    ctx.save_for_backward(q, k, v, o, lse, saved, sinks, bias, slopes, lengths_q, lengths_k)
    ctx.plan, ctx.values = plan, values


def _differentiate(ctx, dout, _dlse, _dmax, _dsaved):
    q, k, v, o, lse, saved, sinks, bias, slopes, lengths_q, lengths_k = ctx.saved_tensors
    *gradients, dsinks, dbias = torch.ops.longspan.attention_backward(
        dout, q, k, v, o, lse, saved, sinks, bias, slopes, lengths_q, lengths_k, ctx.plan,
        *ctx.values,
    )
    own = (None if sinks is None else dsinks, None if bias is None else dbias)
    return (*gradients, *own, *(None,) * 9)


torch.library.register_autograd("longspan::attention", _differentiate, setup_context=_save)
torch.library.register_autograd(
    "longspan::attention_backward", _transforms.refuse_second_derivatives
)


def attend(plan: Plan, q, k, v, sinks, bias, slopes, values: Values):
    """o, lse and max_logit by the cheapest route that the caller's modes allow."""
    q, k, v = dense(q), dense(k), dense(v)
    inputs = (q, k, v, sinks, bias)
    _check_tangents(inputs)
    if tracing():
        return torch.ops.longspan.attention(
            q, k, v, sinks, bias, slopes, values.lengths_q, values.lengths_k, plan.number,
            values.scale, values.softcap, values.dropout, values.seed, values.offset,
        )[:3]
    if _transforms.transforming():
        return _transforms.attend(plan, q, k, v, sinks, bias, slopes, values)
    inputs = q, k, v, sinks, bias = unwrap_dead_wrappers(inputs)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        _check_backward(plan)
        return Attention.apply(q, k, v, sinks, bias, slopes, plan, values)
    return run_forward(plan, q, k, v, sinks, bias, slopes, values)[:3]


def attend_plain(plan: Plan, q, k, v) -> torch.Tensor:
    """o of a plain plan: fewer steps than attend()."""
    if tracing() or _transforms.transforming() or forward_ad._current_level >= 0:
        return attend(plan, q, k, v, None, None, None, Values(plan.scale))[0]
    if not (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()) or (
        q.is_neg() or k.is_neg() or v.is_neg()
    ):
        q, k, v = dense(q), dense(k), dense(v)
    q, k, v = unwrap_if_dead(q), unwrap_if_dead(k), unwrap_if_dead(v)  # of transforms that are over
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        _check_backward(plan)
        return _apply_plain(q, k, v, plan)
    return run_plain(plan, q, k, v)
