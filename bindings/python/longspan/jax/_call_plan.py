"""A whole problem, and what was chosen for it."""

from typing import Any

from longspan._errors import InvalidArgument
from longspan._problem import canonical_problem, problem_text
from longspan.jax import _library
from longspan.jax._plan import Plan
from longspan.jax._spec import PER_SEQUENCE, PLAN, AxisName, Spec, fields_of

# Values of each call that a program has no place for.
_NOT_HERE = ("device_lengths", "page")


def _of_one_sequence(fields: dict) -> dict:
    """The problem of one sequence of a dense batch."""
    fields = dict(fields)
    for key in PER_SEQUENCE:
        values = fields.get(key, "").split(",")
        if len(set(values)) > 1:
            raise InvalidArgument(
                f"{key}={fields[key]}: the sequences of a dense problem must be alike in JAX; use "
                "layout='thd' for lengths that differ"
            )
        if key in fields:
            fields[key] = values[0]
    return fields


class CallPlan(Plan):
    """A Plan that also says what is computed, and by whom: ``attention(q, k, v, plan=plan)``.

    Attributes:
        problem: the canonical problem text.
        layout: "bshd", "sbhd" or "thd".
        forward, backward: (strategy, why, provider, why); backward is None for forward alone.
    """

    def __init__(
        self,
        text: str | None = None,
        *,
        ranks: int = 1,
        strategy: str = "ring",
        partition: str = "auto",
        forward_provider: str = "auto",
        backward_provider: str = "auto",
        gradients: bool = True,
        **problem: Any,
    ):
        """Chooses for a problem, and prepares it.

        Args:
            text: a problem text; or
            **problem: the arguments of ``longspan.problem_text``. Lengths are those over all ranks.
            ranks: devices on the axis.
            strategy, partition, forward_provider, backward_provider: as in ``attention``.
            gradients: False prepares forward alone.
        """
        if text is not None and problem:
            raise InvalidArgument(
                f"{', '.join(problem)} given beside a problem text; say it in the text"
            )
        text = canonical_problem(text if text is not None else problem_text(**problem))
        request = f"forward={forward_provider} backward={backward_provider}"
        request += f" gradients={str(gradients).lower()}"
        if ranks > 1:
            request += f" ranks={ranks} strategy={strategy} partition={partition}"
        self._settle(text, request)

    @classmethod
    def from_bytes(cls, data: bytes) -> "CallPlan":
        """The plan that ``to_bytes`` wrote, here or elsewhere, in any front end of longspan.

        Nothing is chosen anew. Raises ``longspan.InvalidArgument`` for bytes that are damaged, and
        for plans of other devices, providers or versions of longspan, or of strategies that JAX has
        not.
        """
        plan = cls.__new__(cls)
        plan._settle("", PLAN + bytes(data).decode("utf-8", "replace"))
        return plan

    def to_bytes(self) -> bytes:
        """The plan for ``from_bytes``, here or elsewhere, in any front end of longspan."""
        return self._bytes.encode()

    def arguments(self, batch: int = 1) -> dict[str, Any]:
        return {"plan": self}

    def spec(self, axis_name: AxisName) -> Spec:
        """What ``attention`` computes by this plan."""
        if (axis_name is None) != (self.ranks == 1):
            raise InvalidArgument(
                f"the plan is of {self.ranks} ranks and axis_name is {axis_name!r}; several ranks "
                "need the mesh axis that they lie on, one rank has none"
            )
        return Spec(self.problem, self.layout, PLAN + self._bytes, axis_name)

    def _settle(self, text: str, request: str) -> None:
        facts = _library.record(text, request)
        self._bytes = facts["plan"]
        self.problem = facts["problem"]
        self.layout = facts["layout"]
        self.forward = tuple(facts["forward"])
        self.backward = facts["backward"] and tuple(facts["backward"])
        fields = fields_of(self.problem)
        for key in _NOT_HERE:
            if key in fields:
                raise InvalidArgument(
                    f"{key}={fields[key]} in the plan's problem is not here in JAX; use the engine "
                    "of C++ or PyTorch"
                )
        packed = self.layout == "thd"
        one = fields if packed else _of_one_sequence(fields)
        sequences = fields["lengths"].count(",") + 1
        if facts["partition"] == "balanced" and not packed and sequences > 1:
            raise InvalidArgument(
                f"partition balanced cuts {sequences} dense sequences in different places; use "
                "layout='thd', or another partition"
            )
        lengths = [int(n) for n in one["lengths"].split(",")]
        kv_lengths = [int(n) for n in one.get("kv_lengths", one["lengths"]).split(",")]
        self._deal(facts["ranks"], facts["partition"], packed, {"q": lengths, "k": kv_lengths},
                   " ".join(f"{key}={value}" for key, value in one.items()))
