"""Attention of a sequence that lies on the devices of a mesh axis, inside ``shard_map``.

The library's schedules say what travels and which tiles are whose; here XLA's collectives and the
library's tiles are lined up accordingly. Arrays are [rows, heads, dim], rows of the largest rank.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from longspan.jax import _axes, _library
from longspan.jax._derivatives import underived
from longspan.jax._ranges import Ranges
from longspan.jax._spec import (
    Spec, accumulator, for_handlers, gradients_of_sides, shape, workspace,
)


def _tiles(target: str, spec: Spec, index: int, arguments, carried: range, size: int) -> tuple:
    """A call that computes the tiles of a round. The arguments ``carried`` come back changed."""
    results = [shape(arguments[i].shape, arguments[i].dtype) for i in carried]
    call = jax.ffi.ffi_call(
        target,
        [*results, workspace(size)],
        vmap_method="sequential",
        input_output_aliases={i: place for place, i in enumerate(carried)},
    )
    outputs = call(*arguments, problem=spec.problem, request=spec.request, round=index)
    return _axes.vary(outputs[:-1], _axes.union(*arguments))


class _Exchange:
    """What travels in one direction of a call, on the rank that the program runs on."""

    def __init__(self, spec: Spec, direction: dict, rank):
        self._axis = spec.axis
        self._ranks = lax.axis_size(spec.axis)
        self._rank = rank
        self._rounds = direction["rounds"]
        self._sent = [Ranges(r["sent"]) for r in self._rounds]
        self.gathers = direction["gather"]
        self.count = len(self._rounds)

    def _move(self, x, distance: int):
        return lax.ppermute(
            x, self._axis, [(r, (r + distance) % self._ranks) for r in range(self._ranks)]
        )

    def fetch(self, index: int, k, v):
        """Keys and values of the round, from their owner."""
        this = self._rounds[index]
        return [
            self._move(self._sent[index].take(self._rank, x, this["rows"]), this["distance"])
            for x in (k, v)
        ]

    def send_back(self, index: int, gradients, rows: int):
        """Partial gradients of fetched rows, at their owner's ``rows`` rows."""
        distance = -self._rounds[index]["distance"]
        return [
            self._sent[index].give_back(self._rank, self._move(x, distance), rows)
            for x in gradients
        ]

    def gather(self, x):
        return lax.all_gather(x, self._axis, tiled=True)

    def scatter(self, x):
        return lax.psum_scatter(x, self._axis, tiled=True)


def _in_rounds(exchange: _Exchange, k, v, attend):
    """Calls attend(index, keys, values) for the own keys (index 0) and for what each round brings,
    while the next one travels. ``attend`` returns an array that is ready when it is done."""
    arriving = exchange.fetch(0, k, v) if exchange.count else None
    done = attend(0, k, v)
    for index in range(exchange.count):
        here = arriving
        if index + 1 < exchange.count:
            # Not all at once: two rounds are in memory.
            k, v, _ = lax.optimization_barrier((k, v, done))
            arriving = exchange.fetch(index + 1, k, v)
        done = attend(index + 1, *here)


def _valid(spec: Spec) -> Ranges:
    """The query rows that hold tokens."""
    ranks = _library.shards(spec.problem, spec.request)["q"]
    return Ranges([[[run[0], run[0], run[5]] for run in rank["runs"]] for rank in ranks])


def _enter_sink(o, lse, sink, valid):
    """The sink's logit, once all keys are in."""
    total = jnp.where(valid[:, None], jnp.logaddexp(lse, sink), lse)
    keep = jnp.where(jnp.isneginf(total), 0, jnp.exp(lse - total))
    return o * keep[..., None], total


# NOTE: jit for shard_map without jit, which runs operation by operation: that is slow, and arrays
# without elements crash it (see for_handlers).
@functools.partial(jax.jit, static_argnums=0)
def _forward(spec: Spec, q, k, v, sides):
    """o and lse in the type that they are accumulated in, and the rank's largest logits."""
    rank = lax.axis_index(spec.axis).astype(jnp.int32)
    facts = spec.describe()["forward"]
    exchange = _Exchange(spec, facts, rank)
    acc = accumulator(q.dtype)
    carried = [
        jnp.zeros((*q.shape[:-1], v.shape[-1]), acc),
        jnp.full(q.shape[:-1], -jnp.inf, acc),
        jnp.full((q.shape[-2] if spec.has("max_logit") else 0,), -jnp.inf, acc),
    ]
    carried = _axes.vary(carried, _axes.union(q, k, v, rank))
    sink = sides[0]
    terms = for_handlers(*sides, q.dtype)[1:]

    def attend(index: int, keys, values):
        nonlocal carried
        arguments = [rank, q, keys, values, *carried, *terms]
        carried = _tiles("longspan_attend", spec, index, arguments, range(4, 7),
                         facts["workspace"])
        return carried[1]

    if exchange.gathers:
        attend(0, exchange.gather(k), exchange.gather(v))
    else:
        _in_rounds(exchange, k, v, attend)
    o, lse, max_logit = carried
    if spec.has("sink"):
        logit = jnp.zeros(q.shape[-2], acc) if sink is None else sink
        o, lse = _enter_sink(o, lse, logit, _valid(spec).covered(rank, q.shape[0]))
    return o, lse, max_logit if spec.has("max_logit") else None


@functools.partial(jax.jit, static_argnums=0)
def _backward(spec: Spec, q, k, v, o, lse, dout, sides):
    rank = lax.axis_index(spec.axis).astype(jnp.int32)
    facts = spec.describe()["backward"]
    exchange = _Exchange(spec, facts, rank)
    acc = accumulator(q.dtype)
    axes = _axes.union(q, k, v, dout, rank)
    delta = jnp.sum(dout.astype(acc) * o.astype(acc), axis=-1)

    def zeros(like):
        return _axes.vary([jnp.zeros(like.shape, acc)], axes)[0]

    sink = sides[0]
    terms = for_handlers(*sides, q.dtype)[1:]
    dq, dbias = zeros(q), zeros(terms[1])
    dk, dv = zeros(k), zeros(v)

    def attend(index: int, keys, values):
        nonlocal dq, dk, dv, dbias
        arguments = [rank, q, keys, values, dout, lse, delta, dq, zeros(keys), zeros(values),
                     dbias, *terms]
        dq, *partial, dbias = _tiles("longspan_attend_backward", spec, index, arguments,
                                     range(7, 11), facts["workspace"])
        if exchange.gathers:
            partial = [exchange.scatter(x) for x in partial]
        elif index > 0:
            partial = exchange.send_back(index - 1, partial, k.shape[0])
        dk, dv = dk + partial[0], dv + partial[1]
        return dq

    if exchange.gathers:
        attend(0, exchange.gather(k), exchange.gather(v))
    else:
        _in_rounds(exchange, k, v, attend)
    dsink = None
    if sink is not None:
        weight = jnp.where(jnp.isfinite(lse), jnp.exp(sink - lse), 0)
        counted = _valid(spec).covered(rank, q.shape[0])[:, None]
        dsink = -jnp.sum(jnp.where(counted, weight * delta, 0), axis=0)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dsink, dbias


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(spec: Spec, q, k, v, sides):
    """o, lse and max_logit; see _local.attention."""
    run = underived(functools.partial(_forward, spec.without_gradients()))
    o, lse, max_logit = run(q, k, v, sides)
    return o.astype(q.dtype), lse, max_logit


def _attention_forward(spec: Spec, q, k, v, sides):
    spec.check_gradients()
    exact, lse, max_logit = underived(functools.partial(_forward, spec))(q, k, v, sides)
    o = exact.astype(q.dtype)
    kept_o = exact if spec.describe()["exact_o"] else o
    return (o, lse, max_logit), (q, k, v, kept_o, lse, sides)


def _attention_backward(spec: Spec, kept, cotangents):
    q, k, v, o, lse, sides = kept
    run = underived(functools.partial(_backward, spec))
    dq, dk, dv, dsink, dbias = run(q, k, v, o, lse, cotangents[0], sides)
    return dq, dk, dv, gradients_of_sides(sides, dsink, dbias)


attention.defvjp(_attention_forward, _attention_backward)
