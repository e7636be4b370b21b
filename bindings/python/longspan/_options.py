"""How an engine chooses and waits."""

import dataclasses
import math
from typing import Any

from longspan._errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of an engine, the same on all ranks.

    Attributes:
        forward: strategy: auto, ring, all_gather, all_to_all or hybrid.
        backward: as forward, also head_parallel; none prepares forward alone.
        forward_provider: auto, or prefer:NAME, require:NAME, off:NAME (`longspan.support()` lists
            the names). require never falls back.
        backward_provider: likewise.
        partition: which rank owns which rows: auto, contiguous, zigzag, striped or balanced.
        head_slices: in how many slices heads are exchanged where they divide; 0: automatic.
        score_bytes: most bytes of P and dS that a rank's backward keeps at a time where its
            provider puts them into the workspace (hopper); 0: as many as the provider likes.
        pull: forward's all_gather pulls keys inside the launch that computes, where it can.
        require_fp32_partials: decline what would round partial results to 16 bits between ranks.
        promise: empty, or what callers claim about lengths on the device: uniform_lengths,
            compact_lengths or pitched_all_gather.
        guards: report or trap: what a broken promise does.
        output_fill: elide, or always: fill outputs before they are written, too.
        routing_table: path of a table of measured times (`longspan bench --calibrate`) that the
            automatic choice of providers goes by; empty: the one that comes with longspan.
        deadline: seconds of each wait for another rank.
    """

    forward: str = "auto"
    backward: str = "auto"
    forward_provider: str = "auto"
    backward_provider: str = "auto"
    partition: str = "auto"
    head_slices: int = 0
    score_bytes: int = 0
    pull: bool = True
    require_fp32_partials: bool = False
    promise: str = ""
    guards: str = "report"
    output_fill: str = "elide"
    routing_table: str = ""
    deadline: float = 60.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.type is float else field.type
            if not isinstance(value, kinds):
                raise InvalidArgument(
                    f"{field.name} of Options is {value!r}; it must be of type "
                    f"{field.type.__name__}"
                )
        if not 0 < self.deadline < math.inf:
            raise InvalidArgument(
                f"deadline of Options is {self.deadline} seconds; it must be positive and finite"
            )

    def values(self) -> tuple[Any, ...]:
        """The fields in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def flags(self) -> list[str]:
        """The same as flags of the command line, for reports."""
        words = [
            f"--forward={self.forward}",
            f"--backward={self.backward}",
            f"--partition={self.partition}",
            f"--head-slices={self.head_slices}",
            f"--guards={self.guards}",
            f"--output-fill={self.output_fill}",
            f"--deadline={self.deadline}",
        ]
        if self.score_bytes:
            words.append(f"--score-bytes={self.score_bytes}")
        if not self.pull:
            words.append("--no-pull")
        for direction in ("forward", "backward"):
            routing = getattr(self, f"{direction}_provider")
            if routing != "auto":
                words.append(f"--provider={direction}={routing}")
        if self.routing_table:
            words.append(f"--routing-table={self.routing_table}")
        if self.promise:
            words.append(f"--promise={self.promise}")
        return words
