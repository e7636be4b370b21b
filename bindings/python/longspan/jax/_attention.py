"""``attention``: from keyword arguments to a static problem and arrays."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from longspan._errors import InvalidArgument
from longspan._problem import bias_key
from longspan.jax import _axes, _library, _local, _sharded
from longspan.jax._call_plan import CallPlan
from longspan.jax._lengths import LAYOUTS, Integers
from longspan.jax._settled import Settled, spec_for, spec_of
from longspan.jax._spec import DTYPES, AxisName, Spec, accumulator


def _dtype_name(q, k, v) -> str:
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise InvalidArgument(f"{name} is {x.dtype} and q is {q.dtype}; they must be the same")
    for name, dtype in DTYPES.items():
        if q.dtype == dtype:
            return name
    raise InvalidArgument(
        f"q is {q.dtype}; float64, float32, float16 and bfloat16 are taken"
    )


def _check_extents(q, k, v, layout: str) -> None:
    if layout not in LAYOUTS:
        raise InvalidArgument(f"layout is {layout!r}; one of {', '.join(LAYOUTS)}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not all(isinstance(extent, int) for extent in x.shape):
            raise InvalidArgument(
                f"{name} is {list(x.shape)}; extents must be known when the program is traced"
            )
        if x.ndim != len(layout):
            raise InvalidArgument(
                f"{name} is {list(x.shape)}; layout={layout!r} takes {len(layout)} extents"
            )
    if k.shape[:-1] != v.shape[:-1]:
        raise InvalidArgument(f"k is {list(k.shape)} and v {list(v.shape)}; all but the last "
                              "extent must agree")
    if q.shape[-1] != k.shape[-1]:
        raise InvalidArgument(f"q has dim {q.shape[-1]} and k {k.shape[-1]}; they must agree")


def _check_bias(bias, spec: Spec) -> None:
    if not jnp.issubdtype(bias.dtype, jnp.floating):
        raise InvalidArgument(
            f"bias is {bias.dtype}; it is added to the scores and of q's type. A mask of booleans "
            "is jnp.where(mask, 0, -jnp.inf), or better a window, prefix or lengths"
        )
    key = spec.fields["bias"]
    q_extents, k_extents = spec.extents("q"), spec.extents("k")
    batch = 1 if key.startswith("1") else len(q_extents)
    heads = spec.heads[0] if key.endswith("h") else 1
    rows = 1 if key == "1,1,1,s" else max(q_extents)
    expected = (batch, heads, rows, max(k_extents))
    if tuple(bias.shape) != expected:
        raise InvalidArgument(f"bias is {list(bias.shape)}; this problem takes {list(expected)}")


def _seed(dropout: float, key):
    """Two words of 32 bits; None without dropout."""
    if not dropout:
        return None
    if key is None:
        raise InvalidArgument(f"dropout is {dropout}: dropout_key is needed, a key of jax.random "
                              "that differs from step to step")
    return jax.random.bits(key, (2,), jnp.uint32)


def _per_head(values, name: str, heads: int, dtype):
    """[heads] in accumulator type; None where there is none."""
    if values is None or isinstance(values, (bool, str)):
        return None
    values = jnp.asarray(values)
    if values.shape != (heads,):
        raise InvalidArgument(f"{name} is {list(values.shape)}; it takes [{heads}], one per query "
                              "head")
    return values.astype(dtype)


def _alibi_kind(alibi) -> str | None:
    if isinstance(alibi, str):
        raise InvalidArgument(f"alibi is {alibi!r}; it must be True, False or slopes [heads]")
    return None if alibi is None or alibi is False else "default"


def _sink_kind(sinks) -> str | None:
    if sinks is None or sinks is False:
        return None
    if isinstance(sinks, (str, bool)):
        if sinks == "off_by_one":
            return sinks
        raise InvalidArgument(f"sinks is {sinks!r}; it must be values [heads], 'off_by_one' or "
                              "None")
    return "learnable"


def _check_rows(spec: Spec, side: str, x) -> None:
    """Every rank's rows must fit x, and those of a batch must fill it."""
    batch = {"bshd": 0, "sbhd": 1}.get(spec.layout)
    batch = 1 if batch is None else x.shape[batch]
    rows = x.shape[0] if spec.layout == "thd" else x.shape[0] * x.shape[1]
    answer = _library.shards(spec.problem, spec.request)
    shards = answer[side]
    largest = max(shard["rows"] for shard in shards)
    uneven = batch > 1 and any(s["rows"] != rows or s["batch"] != batch for s in shards)
    if largest == rows and not uneven:
        return
    raise InvalidArgument(
        f"{side} has {rows} rows on each device; partition {answer['partition']} gives them "
        f"{[s['rows'] for s in shards]} rows. Cut it with longspan.jax.Plan, which pads all to the "
        "largest" + ("; a batch takes layout='thd' where shards differ" if batch > 1 else "")
    )


def _rows(x, layout: str):
    """[rows, heads, dim], sequence by sequence."""
    if layout == "sbhd":
        x = jnp.swapaxes(x, 0, 1)
    return x if x.ndim == 3 else x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _unrows(x, like, layout: str):
    """The reverse, with the first extents of ``like``."""
    if layout == "thd":
        return x
    if layout == "bshd":
        return x.reshape(*like.shape[:2], *x.shape[1:])
    return jnp.swapaxes(x.reshape(like.shape[1], like.shape[0], *x.shape[1:]), 0, 1)


def _over_axis(spec: Spec, q, k, v, sides):
    _check_rows(spec, "q", q)
    _check_rows(spec, "k", k)
    sink, slopes, bias, seed = sides
    if spec.has("alibi") and slopes is None:
        slopes = jnp.asarray(spec.describe()["slopes"], accumulator(q.dtype))
    arrays = [_rows(x, spec.layout) for x in (q, k, v)]
    axes = _axes.union(*arrays, lax.axis_index(spec.axis))
    o, lse, max_logit = _sharded.attention(
        spec, *_axes.vary(arrays, axes), _axes.vary((sink, slopes, bias, seed), axes)
    )
    return _unrows(o, q, spec.layout), _unrows(lse, q, spec.layout), max_logit


def _on_one(spec: Spec, q, k, v, sides):
    axes = _axes.union(q, k, v, *(x for x in sides if x is not None))
    return _local.attention(spec, *_axes.vary((q, k, v), axes), _axes.vary(sides, axes))


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    causal: bool = False,
    align: str | None = None,
    window: tuple[int, int] | int | None = None,
    prefix: Integers | None = None,
    chunk: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: jax.Array | str | None = None,
    alibi: jax.Array | bool = False,
    bias: jax.Array | None = None,
    dropout: float = 0.0,
    dropout_key: jax.Array | None = None,
    lengths: Integers | None = None,
    kv_lengths: Integers | None = None,
    cu_seqlens: Integers | None = None,
    cu_seqlens_kv: Integers | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    return_max_logit: bool = False,
    forward_provider: str = "auto",
    backward_provider: str = "auto",
    axis_name: AxisName = None,
    strategy: str = "ring",
    partition: str = "contiguous",
    plan: CallPlan | None = None,
) -> Any:
    """Exact attention, differentiable in q, k, v, sinks and bias.

    Works under ``jit``, ``grad``, ``vmap``, ``jax.checkpoint`` and, with ``axis_name``, inside
    ``shard_map``. Nothing that is asked for is ignored.

    Args:
        q: [batch, seq, heads, dim], or as ``layout`` says; float64, float32, float16 or bfloat16.
        k, v: likewise, with as many heads as divide those of q; v may have another dim.
        causal: queries see no later key.
        align: "top_left" or "bottom_right": which key query 0 of a sequence is aligned with; must
            be said where lengths differ and a mask depends on it.
        window: (left, right) keys that a query sees beside its own; -1 is unbounded.
        prefix: first keys of each sequence that every query sees.
        chunk: queries see keys of their own chunk of this size; 0 is off.
        scale: factor on q.k, 1 / sqrt(dim) by default.
        softcap: X of X tanh(score / X); 0 is off.
        sinks: [heads], a logit in the denominator for each query head, or "off_by_one" for 0.
        alibi: True for the usual slopes, or [heads] slopes, which get no gradient.
        bias: [batch or 1, heads or 1, sq, skv] or [1, 1, 1, skv], in the type of q, whole on every
            device. sq and skv are those of the whole sequences.
        dropout: probability of dropping. The same ``dropout_key`` drops the same, on any number of
            devices.
        lengths, kv_lengths: valid tokens of each sequence over all devices; the rest is padding,
            which is not read. Known when tracing (tuple or numpy).
        cu_seqlens, cu_seqlens_kv: for layout "thd": where each sequence begins, then the end.
        layout: "bshd", "sbhd" or "thd" (sequences one behind the other, no batch).
        return_lse: also return the natural log of the denominators, shape of o without dim,
            without gradient.
        return_max_logit: also return the largest visible score of each query head, without
            gradient.
        forward_provider, backward_provider: auto, prefer:NAME, require:NAME or off:NAME.
        axis_name: mesh axis that the sequence lies on; needs ``shard_map``.
        strategy: over an axis: "ring" or "all_gather".
        partition: over an axis, which tokens a device holds: "contiguous", "zigzag", "striped" or
            "balanced"; see Plan.
        plan: a prepared problem in the place of masks, lengths, scale, softcap, dropout's
            probability, providers, strategy and partition. It says which of sinks, alibi and bias
            there are, and over several ranks still needs ``axis_name``.

    Returns:
        o, shape of q with v's dim; with ``return_lse`` or ``return_max_logit`` a tuple of o and
        those.

    Raises:
        longspan.InvalidArgument: names the argument, its value and what is allowed.
        longspan.Unsupported: nobody computes this; the message has all declines.
    """
    q, k, v = map(jnp.asarray, (q, k, v))
    bias = None if bias is None else jnp.asarray(bias)
    axis_name = tuple(axis_name) if isinstance(axis_name, list) else axis_name
    dtype = _dtype_name(q, k, v)
    _check_extents(q, k, v, layout)
    settled = Settled(causal, align, window, prefix, chunk, scale, softcap, dropout, lengths,
                      kv_lengths, cu_seqlens, cu_seqlens_kv, forward_provider, backward_provider,
                      strategy, partition)
    sides = {
        "alibi": _alibi_kind(alibi),
        "bias": bias_key(bias),
        "sink": _sink_kind(sinks),
        "max_logit": "true" if return_max_logit else None,
    }
    if plan is None:
        spec = spec_for(q, k, v, dtype, layout, axis_name, settled, sides)
    else:
        spec = spec_of(plan, q, k, v, dtype, layout, axis_name, settled, sides)
    acc = accumulator(q.dtype)
    if bias is not None:
        _check_bias(bias, spec)
    slopes = _per_head(alibi, "alibi", q.shape[-2], acc)
    sides = (
        _per_head(sinks, "sinks", q.shape[-2], acc),
        None if slopes is None else lax.stop_gradient(slopes),
        None if bias is None else bias.astype(q.dtype),
        _seed(float(spec.fields.get("dropout", 0)), dropout_key),
    )
    run = _on_one if spec.axis is None else _over_axis
    o, lse, largest = run(spec, q, k, v, sides)
    results = (o,)
    results += (lax.stop_gradient(lse),) if return_lse else ()
    if return_max_logit:
        largest = lax.stop_gradient(largest)
        results += (largest if axis_name is None else lax.pmax(largest, axis_name),)
    return results if len(results) > 1 else o
