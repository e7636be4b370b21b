"""The rule for ``vmap``: one call with more sequences where that is the same, else call by call."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from longspan.jax._derivatives import underived
from longspan.jax._spec import Spec

# How arrays of several calls become one: the layout of the problem, rows one behind the other,
# or not at all.
LAYOUT, ROWS, SHARED = "layout", "rows", "shared"


@dataclasses.dataclass(frozen=True)
class Direction:
    """A call as a function of arrays.

    Attributes:
        make: gives the function for a Spec.
        arguments: how each argument folds; ``more`` says so of those behind them.
        results: likewise.
    """

    make: Callable[[Spec], Callable]
    arguments: tuple
    results: tuple
    more: str = ROWS

    def __hash__(self):
        return id(self)


def _fold(how: str, layout: str, x):
    """[n, ...] arrays of n calls as that of one."""
    if how == LAYOUT and layout == "sbhd":
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _unfold(how: str, layout: str, n: int, x):
    if how == LAYOUT and layout == "sbhd":
        return jnp.moveaxis(x.reshape(x.shape[0], n, x.shape[1] // n, *x.shape[2:]), 1, 0)
    return x.reshape(n, x.shape[0] // n, *x.shape[1:])


def _one_by_one(run, batched, arrays):
    def body(moving):
        moving = iter(moving)
        return run(*(next(moving) if b else x for b, x in zip(batched, arrays)))

    return jax.lax.map(body, [x for b, x in zip(batched, arrays) if b])


def _extended(hows: tuple, more: str, count: int) -> tuple:
    return hows + (more,) * (count - len(hows))


def _as_one(direction: Direction, spec: Spec, n: int, batched, arrays):
    folded = []
    for how, b, x in zip(_extended(direction.arguments, direction.more, len(arrays)), batched,
                         arrays):
        if how == SHARED:
            folded.append(x)
            continue
        folded.append(_fold(how, spec.layout, x if b else jnp.broadcast_to(x, (n, *x.shape))))
    results = batchable(direction, spec.repeated(n))(*folded)
    hows = _extended(direction.results, direction.more, len(results))
    # What calls share has no elements here: see Spec.folds.
    return [
        jnp.zeros((n, *x.shape), x.dtype) if how == SHARED
        else _unfold(how, spec.layout, n, x)
        for how, x in zip(hows, results)
    ]


@functools.lru_cache(maxsize=1024)
def batchable(direction: Direction, spec: Spec):
    """The function of ``direction`` with its rule for vmap."""
    run = jax.custom_batching.custom_vmap(direction.make(spec))

    @run.def_vmap
    def rule(n, batched, *arrays):
        hows = _extended(direction.arguments, direction.more, len(arrays))
        shares = any(how == SHARED and b and x.size for how, b, x in zip(hows, batched, arrays))
        if n == 0 or shares or not spec.folds():
            results = _one_by_one(run, batched, arrays)
        else:
            results = _as_one(direction, spec, n, batched, arrays)
        return results, [True] * len(results)

    return underived(run)
