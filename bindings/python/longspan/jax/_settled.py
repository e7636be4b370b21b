"""The static problem of a call: from its arguments, or from a plan that has settled them."""

import dataclasses
from typing import Any

import jax

from longspan._errors import InvalidArgument
from longspan._problem import canonical_problem, problem_text
from longspan.jax import _axes, _library
from longspan.jax._call_plan import CallPlan
from longspan.jax._lengths import side_of
from longspan.jax._spec import Spec


_CONSTANTS = ("causal", "window", "prefix", "chunk", "scale", "softcap", "dropout")


@dataclasses.dataclass
class Settled:
    """Arguments of ``attention`` that a plan takes the place of."""

    causal: bool = False
    align: str | None = None
    window: Any = None
    prefix: Any = None
    chunk: int = 0
    scale: float | None = None
    softcap: float = 0.0
    dropout: float = 0.0
    lengths: Any = None
    kv_lengths: Any = None
    cu_seqlens: Any = None
    cu_seqlens_kv: Any = None
    forward_provider: str = "auto"
    backward_provider: str = "auto"
    strategy: str = "ring"
    partition: str = "contiguous"

    def __post_init__(self):
        for name in _CONSTANTS:
            leaves = jax.tree.leaves(getattr(self, name))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                raise InvalidArgument(
                    f"{name} is traced; it must be known when the program is traced, of which it "
                    "is a constant: close over it, or pass it through static_argnums"
                )

    def given(self) -> list[str]:
        """The names of those that are not at their defaults."""
        names = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not field.default and (value is None or field.default is None
                                               or value != field.default):
                names.append(field.name)
        return names


def spec_for(q, k, v, dtype: str, layout: str, axis_name, settled: Settled, sides: dict) -> Spec:
    """``sides``: the keys alibi, bias, sink and max_logit of the problem; None where absent."""
    ranks = _axes.size(axis_name)
    q_side = side_of(q.shape, layout, ranks, settled.lengths, settled.cu_seqlens,
                     ("lengths", "cu_seqlens"))
    kv_lengths, cu_seqlens_kv = settled.kv_lengths, settled.cu_seqlens_kv
    if kv_lengths is None and cu_seqlens_kv is None:
        kv_lengths, cu_seqlens_kv = settled.lengths, settled.cu_seqlens
    k_side = side_of(k.shape, layout, ranks, kv_lengths, cu_seqlens_kv,
                     ("kv_lengths", "cu_seqlens_kv"))
    text = problem_text(
        dtype=dtype, heads=(q.shape[-2], k.shape[-2]), dim=q.shape[-1], dim_v=v.shape[-1],
        lengths=q_side.lengths, kv_lengths=k_side.lengths, padded=q_side.padded,
        kv_padded=k_side.padded, layout=layout, causal=settled.causal, align=settled.align,
        window=settled.window, prefix=settled.prefix, chunk=settled.chunk, scale=settled.scale,
        softcap=settled.softcap, dropout=settled.dropout, alibi=sides["alibi"] is not None,
        bias=sides["bias"], sink=sides["sink"], max_logit=sides["max_logit"] is not None,
    )
    for key, side in (("tokens", q_side), ("kv_tokens", k_side)):
        text += "" if side.tokens is None else f" {key}={side.tokens}"
    request = f"forward={settled.forward_provider} backward={settled.backward_provider}"
    shared = f"ranks={ranks} strategy={settled.strategy} partition={settled.partition}"
    if ranks > 1:
        request += f" {shared}"
    elif (settled.strategy, settled.partition) != (Settled.strategy, Settled.partition):
        _library.shards(canonical_problem(text), shared)  # refuses names that there are not
    return Spec(canonical_problem(text), layout, request, axis_name if ranks > 1 else None)


def _check(name: str, given, planned) -> None:
    if given != planned:
        raise InvalidArgument(
            f"{name} is {given} and in the plan {planned}; give the plan's, or record another plan"
        )


def spec_of(plan: CallPlan, q, k, v, dtype: str, layout: str, axis_name, settled: Settled,
            sides: dict) -> Spec:
    """Of a plan, for arrays that fit it."""
    if not isinstance(plan, CallPlan):
        raise InvalidArgument(
            f"plan is a {type(plan).__name__}; it must be a CallPlan. A Plan, which is of rows "
            "alone, gives **plan.arguments()"
        )
    if settled.given():
        raise InvalidArgument(
            f"{', '.join(settled.given())} given beside a plan, which has settled them: "
            + plan.problem
        )
    ranks = _axes.size(axis_name)
    spec = plan.spec(axis_name if ranks > 1 else None)
    fields = spec.fields
    _check("ranks", ranks, plan.ranks)
    _check("layout", layout, plan.layout)
    _check("dtype", dtype, fields["dtype"])
    _check("heads", (q.shape[-2], k.shape[-2]), spec.heads)
    _check("dim", q.shape[-1], int(fields["dim"]))
    _check("dim_v", v.shape[-1], int(fields.get("dim_v", fields["dim"])))
    for key in ("alibi", "sink"):
        _check(key, sides[key], fields.get(key))
    _check("bias", sides["bias"] is not None, "bias" in fields)
    if sides["max_logit"] is not None:
        _check("max_logit", "true", fields.get("max_logit"))
    return spec
