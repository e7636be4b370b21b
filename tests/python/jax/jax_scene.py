"""Inputs of a test, and what the library and the oracle make of them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import jax_oracle
import numpy as np
from jax.sharding import PartitionSpec
from jax_oracle import Terms

from longspan.jax import Plan, attention


@dataclasses.dataclass
class Scene:
    """Sequences of one layout and what is asked of them. Arrays are numpy, rounded to ``dtype``."""

    lengths: tuple = (24, 24)
    kv_lengths: tuple | None = None
    padded: int | None = None  # dense layouts: rows of each sequence
    heads: tuple = (4, 2)
    dims: tuple = (16, 16)
    dtype: str = "float32"
    layout: str = "bshd"
    terms: Terms = Terms()
    sinks: np.ndarray | str | None = None
    bias: tuple | None = None  # its shape
    slopes: np.ndarray | bool = False
    key: jax.Array | None = None
    poison: bool = False  # NaN in rows of no token

    def __post_init__(self):
        self.kv_lengths = self.kv_lengths or self.lengths
        rng = np.random.default_rng(7)
        self.q_spans, rows = self._spans(self.lengths)
        self.k_spans, keys = self._spans(self.kv_lengths)
        (h, hk), (d, dv) = self.heads, self.dims
        draw = lambda *shape: np.asarray(jnp.asarray(rng.standard_normal(shape), self.dtype))
        with jax.enable_x64(True):
            self.q, self.k, self.v = draw(rows, h, d), draw(keys, hk, d), draw(keys, hk, dv)
            self.dout = draw(rows, h, dv)
            self.bias_values = None if self.bias is None else draw(*self.bias)

    def _spans(self, lengths):
        begin, spans = 0, []
        for n in lengths:
            spans.append((begin, n))
            begin += n if self.layout == "thd" else (self.padded or max(lengths))
        return spans, begin

    def poisoned(self, x, spans):
        if not self.poison:
            return x
        result = np.full_like(x, np.nan)
        for begin, n in spans:
            result[begin : begin + n] = x[begin : begin + n]
        return result

    def shaped(self, x):
        """From packed rows to the layout."""
        if self.layout == "thd":
            return x
        x = x.reshape(len(self.lengths), -1, *x.shape[1:])
        return x if self.layout == "bshd" else np.swapaxes(x, 0, 1)

    def rows(self, x):
        x = np.asarray(x)
        if self.layout == "thd":
            return x
        x = x if self.layout == "bshd" else np.swapaxes(x, 0, 1)
        return x.reshape(-1, *x.shape[2:])

    def arrays(self):
        q = self.poisoned(self.q, self.q_spans)
        k, v = self.poisoned(self.k, self.k_spans), self.poisoned(self.v, self.k_spans)
        return [jnp.asarray(self.shaped(x)) for x in (q, k, v)]

    def arguments(self) -> dict:
        arguments = {**self.terms.arguments(), "layout": self.layout, "alibi": self.slopes}
        if self.layout == "thd":
            arguments["cu_seqlens"] = np.cumsum((0, *self.lengths))
            arguments["cu_seqlens_kv"] = np.cumsum((0, *self.kv_lengths))
        else:
            arguments |= {"lengths": self.lengths, "kv_lengths": self.kv_lengths}
        if self.key is not None:
            arguments["dropout_key"] = self.key
        return arguments

    def sides(self):
        sinks = self.sinks if isinstance(self.sinks, np.ndarray) else None
        bias = self.bias_values
        return [None if x is None else jnp.asarray(x) for x in (sinks, bias)]

    def call(self, q, k, v, sinks, bias, **more):
        """o, (lse, max_logit)"""
        sinks = self.sinks if isinstance(self.sinks, str) else sinks
        o, lse, largest = attention(q, k, v, sinks=sinks, bias=bias, return_lse=True,
                                    return_max_logit=True, **self.arguments(), **more)
        return o, (lse, largest)

    def results(self, call=None) -> dict:
        """All results of ``call`` (the library's by default) in packed rows."""
        q, k, v = self.arrays()
        o, back, (lse, largest) = jax.vjp(call or self.call, q, k, v, *self.sides(), has_aux=True)
        dq, dk, dv, dsinks, dbias = back(jnp.asarray(self.shaped(self.dout)))
        results = {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
        results = {name: self.rows(x) for name, x in results.items()}
        results["max_logit"] = largest
        if dsinks is not None:
            results["dsinks"] = dsinks
        if dbias is not None:
            results["dbias"] = dbias
        return results

    def truth(self) -> dict:
        sinks, bias = self.sides()
        if self.sinks == "off_by_one" if isinstance(self.sinks, str) else False:
            sinks = np.zeros(self.heads[0])
        slopes = None if self.slopes is False else self.slopes
        if slopes is True:
            slopes = 2.0 ** (-8.0 / self.heads[0] * (1 + np.arange(self.heads[0])))
        seed = None if self.key is None else np.asarray(jax.random.bits(self.key, (2,), jnp.uint32))
        spans = list(zip(self.q_spans, self.k_spans))
        return jax_oracle.attention(self.q, self.k, self.v, self.dout, spans, self.terms, sinks,
                                    bias, slopes, seed)

    def check(self, call=None, bars: dict = jax_oracle.BARS) -> None:
        with jax.enable_x64(self.dtype == "float64"):
            jax_oracle.check(self.results(call), self.truth(), self.dtype, bars)


def over_mesh(scene: Scene, partition: str, *, mesh, check_vma: bool = True, **options):
    """Scene.call on the whole arrays, cut by a Plan and computed inside shard_map over the
    axis "cp" of the mesh."""
    axis = {"bshd": 1, "sbhd": 0, "thd": 0}[scene.layout]
    rows = PartitionSpec(*[None] * axis, "cp")
    terms = scene.terms
    mask = {"causal": terms.causal, "align": terms.align, "window": terms.window,
            "chunk": terms.chunk}
    if scene.layout == "thd":
        plan = Plan(mesh.size, cu_seqlens=np.cumsum((0, *scene.lengths)), partition=partition,
                    cu_seqlens_kv=np.cumsum((0, *scene.kv_lengths)), prefix=terms.prefix, **mask)
    else:
        pad = scene.padded or max(scene.lengths)
        plan = Plan(mesh.size, seq=pad, kv_seq=scene.padded or max(scene.kv_lengths),
                    partition=partition, **mask)
    body = functools.partial(scene.call, axis_name="cp", partition=plan.partition, **options)
    sharded = jax.shard_map(body, mesh=mesh, in_specs=(rows, rows, rows, PartitionSpec(),
                            PartitionSpec()), out_specs=(rows, (rows, PartitionSpec())),
                            check_vma=check_vma)

    def call(q, k, v, sinks, bias):
        cut = [plan.shard(x, side, axis) for x, side in ((q, "q"), (k, "k"), (v, "k"))]
        o, (lse, largest) = sharded(*cut, sinks, bias)
        return plan.unshard(o, axis=axis), (plan.unshard(lse, axis=axis), largest)

    return jax.jit(call)
