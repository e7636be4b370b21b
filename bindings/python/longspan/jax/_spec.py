"""What is static of one attention call."""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp

from longspan._errors import Unsupported
from longspan.jax import _library

DTYPES = {"f64": jnp.float64, "f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}

AxisName: TypeAlias = str | tuple[str, ...] | None

PLAN = "plan="  # what a request that is a plan begins with

# Lists with one entry per sequence.
PER_SEQUENCE = ("lengths", "kv_lengths", "padded", "kv_padded", "prefix")
_ALIGNMENT = 64  # of a workspace: a part of an array of bytes is used that is aligned


def fields_of(problem: str) -> dict:
    """The keys of a canonical problem text."""
    return dict(pair.split("=", 1) for pair in problem.split(" "))


@dataclasses.dataclass(frozen=True)
class Spec:
    """Hashable, so that one compiled program serves all calls that are alike.

    Attributes:
        problem: canonical text of the whole problem.
        layout: of q, k, v and o.
        request: routing and, over several ranks, how they share the work; or a plan.
        axis: mesh axis of the ranks; None for one rank.
    """

    problem: str
    layout: str
    request: str
    axis: AxisName = None

    @property
    def fields(self) -> dict:
        return fields_of(self.problem)

    def has(self, key: str) -> bool:
        """Whether a key of the problem is not at its default."""
        return key in self.fields

    @property
    def heads(self) -> tuple[int, int]:
        q, kv = self.fields["heads"].split("/")
        return int(q), int(kv)

    def extents(self, side: str) -> list[int]:
        """Rows of each sequence, padding included; ``side`` is q or k."""
        fields = self.fields
        lengths = fields["lengths"]
        if side == "q":
            text = fields.get("padded", lengths)
        else:
            text = fields.get("kv_padded", fields.get("kv_lengths", lengths))
        return [int(n) for n in text.split(",")]

    def describe(self) -> dict:
        return _library.describe(self.problem, self.request)

    @property
    def recorded(self) -> bool:
        return self.request.startswith(PLAN)

    def check_gradients(self) -> None:
        if self.recorded and _library.record("", self.request)["backward"] is None:
            raise Unsupported(
                "the plan is for forward alone, but a gradient is asked for; record one with "
                "gradients, or use jax.lax.stop_gradient"
            )

    def without_gradients(self) -> "Spec":
        if self.recorded:
            return self  # what forward keeps is part of the plan
        return dataclasses.replace(self, request=self.request + " gradients=false")

    def folds(self) -> bool:
        """Whether a batch of such calls is one call with more sequences: nothing in it belongs to
        the whole call, or names its sequences."""
        fields = self.fields
        per_call = ("tokens", "kv_tokens", "dropout", "max_logit")
        return (
            not self.recorded
            and not any(key in fields for key in per_call)
            and fields.get("sink") != "learnable"
            and fields.get("bias", "b").startswith("b")
        )

    def repeated(self, times: int) -> "Spec":
        """The problem with its sequences ``times`` times."""
        fields = self.fields
        for key in PER_SEQUENCE:
            if key in fields:
                fields[key] = ",".join([fields[key]] * times)
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        return dataclasses.replace(self, problem=text)


def accumulator(dtype) -> jnp.dtype:
    """What statistics, partial results and their gradients are kept in."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


def shape(extents, dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(extents), dtype)


def workspace(size: int) -> jax.ShapeDtypeStruct:
    return shape((size + _ALIGNMENT,), jnp.uint8)


def for_handlers(sink, slopes, bias, seed, dtype) -> list:
    """What only some problems have, as handlers take it: absent ones without elements.

    NOTE: such arrays are made where they are used. As arguments of a shard_map they crash XLA of
    jaxlib 0.11.
    """
    acc = accumulator(dtype)
    return [
        jnp.zeros((0,), acc) if sink is None else sink,
        jnp.zeros((0,), acc) if slopes is None else slopes,
        jnp.zeros((0, 0, 0, 0), dtype) if bias is None else bias,
        jnp.zeros((0,), jnp.uint32) if seed is None else seed,
    ]


def gradients_of_sides(sides, dsink, dbias) -> tuple:
    """Of sink, slopes, bias and seed; None where there is none."""
    sink, _, bias, _ = sides
    return (
        None if sink is None else dsink,
        None,
        None if bias is None else dbias.astype(bias.dtype),
        None,
    )
