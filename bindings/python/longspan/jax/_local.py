"""Attention on one device, with its derivative."""

import functools

import jax

from longspan.jax import _axes
from longspan.jax._batching import LAYOUT, ROWS, SHARED, Direction, batchable
from longspan.jax._spec import (
    DTYPES, Spec, accumulator, for_handlers, gradients_of_sides, shape, workspace,
)


def _call(target: str, spec: Spec, results, arguments) -> tuple:
    """An XLA custom call; what it gives varies over the mesh axes that its arguments vary over."""
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    outputs = call(*arguments, problem=spec.problem, request=spec.request)
    return _axes.vary(outputs, _axes.union(*arguments))


def _forward(spec: Spec):
    """q, k, v, sink, slopes, bias, seed -> o, lse, max_logit, saved buffers."""
    facts = spec.describe()
    saved = [shape(b["shape"], DTYPES[b["dtype"]]) for b in facts["saved"]]

    def run(q, k, v, *sides):
        acc = accumulator(q.dtype)
        results = [
            shape((*q.shape[:-1], v.shape[-1]), q.dtype),
            shape(q.shape[:-1], acc),
            shape((q.shape[-2] if spec.has("max_logit") else 0,), acc),
            workspace(facts["workspace"]["forward"]),
            *saved,
        ]
        o, lse, max_logit, _, *kept = _call("longspan_forward", spec, results, (q, k, v, *sides))
        return [o, lse, max_logit, *kept]

    return jax.jit(run)


def _backward(spec: Spec):
    """q, k, v, o, lse, dout, sink, slopes, bias, seed, saved buffers -> dq, dk, dv, dsink, dbias"""
    facts = spec.describe()

    def run(q, k, v, o, lse, dout, sink, slopes, bias, seed, *saved):
        acc = accumulator(q.dtype)
        results = [
            shape(q.shape, q.dtype),
            shape(k.shape, k.dtype),
            shape(v.shape, v.dtype),
            shape(sink.shape, acc),
            shape(bias.shape, acc),
            workspace(facts["workspace"]["backward"]),
        ]
        arguments = (q, k, v, o, lse, dout, sink, slopes, bias, seed, *saved)
        return list(_call("longspan_backward", spec, results, arguments)[:-1])

    return jax.jit(run)


_SIDES = (SHARED, SHARED, ROWS, SHARED)
_FORWARD = Direction(
    _forward, arguments=(LAYOUT,) * 3 + _SIDES, results=(LAYOUT, LAYOUT, SHARED)
)
_BACKWARD = Direction(
    _backward, arguments=(LAYOUT,) * 6 + _SIDES, results=(LAYOUT,) * 3 + (SHARED, ROWS)
)


def _results(spec: Spec, o, lse, max_logit):
    return o, lse, max_logit if spec.has("max_logit") else None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(spec: Spec, q, k, v, sides):
    """o, lse and max_logit, which is None unless the problem asks for it.

    ``sides`` are sink, slopes, bias and seed; None where the problem has none.
    """
    run = batchable(_FORWARD, spec.without_gradients())
    o, lse, max_logit, *_ = run(q, k, v, *for_handlers(*sides, q.dtype))
    return _results(spec, o, lse, max_logit)


def _attention_forward(spec: Spec, q, k, v, sides):
    spec.check_gradients()
    run = batchable(_FORWARD, spec)
    o, lse, max_logit, *saved = run(q, k, v, *for_handlers(*sides, q.dtype))
    return _results(spec, o, lse, max_logit), (q, k, v, o, lse, sides, saved)


def _attention_backward(spec: Spec, kept, cotangents):
    q, k, v, o, lse, sides, saved = kept
    run = batchable(_BACKWARD, spec)
    arguments = (q, k, v, o, lse, cotangents[0], *for_handlers(*sides, q.dtype), *saved)
    dq, dk, dv, dsink, dbias = run(*arguments)
    return dq, dk, dv, gradients_of_sides(sides, dsink, dbias)


attention.defvjp(_attention_forward, _attention_backward)
