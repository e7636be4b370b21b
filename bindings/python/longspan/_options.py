"""How an engine chooses and waits."""

import dataclasses
from typing import Any


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
        head_slices: in how many slices heads are exchanged where they divide.
        pull: forward's all_gather pulls keys inside the launch that computes, where it can.
        require_fp32_partials: decline what would round partial results to 16 bits between ranks.
        promise: empty, or uniform_lengths: what callers claim about lengths on the device.
        guards: report or trap: what a broken promise does.
        deadline: seconds of each wait for another rank.
    """

    forward: str = "auto"
    backward: str = "auto"
    forward_provider: str = "auto"
    backward_provider: str = "auto"
    partition: str = "auto"
    head_slices: int = 1
    pull: bool = True
    require_fp32_partials: bool = False
    promise: str = ""
    guards: str = "report"
    deadline: float = 60.0

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
            f"--deadline={self.deadline}",
        ]
        if not self.pull:
            words.append("--no-pull")
        for direction in ("forward", "backward"):
            routing = getattr(self, f"{direction}_provider")
            if routing != "auto":
                words.append(f"--provider={direction}={routing}")
        if self.promise:
            words.append(f"--promise={self.promise}")
        return words
