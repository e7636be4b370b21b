"""One rank: a process group's communicator, a device and options."""

import dataclasses
import functools
import weakref
from typing import Any

import torch

from longspan import _native
from longspan._errors import InvalidArgument, Unsupported
from longspan._options import Options
from longspan._problem import problem_text
from longspan._reports import explain
from longspan.torch._group import Group, communicator_of, process_group
from longspan.torch._plan import Plan


class Engine:
    """Prepares and runs problems as one rank of ``group``.

    Args:
        group: a ProcessGroup or one-dimensional DeviceMesh; None computes alone. Creating an engine
            is collective over it.
        device: where tensors are: "cpu" or "cuda:N".
        options: the same on all ranks.
        communicator: how ranks exchange tensors: "auto"; on GPUs "peer" (one host) or "nccl", on
            the CPU "callback" (the process group itself).
    """

    def __init__(
        self,
        group: Group = None,
        device: torch.device | str = "cpu",
        options: Options = Options(),
        communicator: str = "auto",
    ):
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self.group = process_group(group)
        self.device = device
        self.options = options
        self.ranks = 1 if self.group is None else self.group.size()
        self.rank = 0 if self.group is None else self.group.rank()
        self.communicator = communicator_of(self.group, device, communicator)
        self.handle = _native.make_engine(
            self.communicator, str(device), dataclasses.asdict(options)
        )
        cached = functools.lru_cache(maxsize=256)
        self._planned = cached(lambda text: Plan(self, self.prepare(text)))
        self._loaded = cached(lambda data: Plan(self, _native.load(self.handle, data)))

    def plan(self, text: str | None = None, **problem: Any) -> Plan:
        """Prepares a problem; collective when it is new, from the library's cache when it is not.

        Args:
            text: a problem text; or
            **problem: the arguments of `longspan.problem_text`. Lengths are those over all ranks.
        """
        if text is not None and problem:
            raise InvalidArgument(
                f"{', '.join(problem)} given beside a problem text; say it in the text"
            )
        return self._planned(text if text is not None else problem_text(**problem))

    def load(self, data: bytes) -> Plan:
        """The plan of `Plan.to_bytes`; collective when it is new. As `Plan.from_bytes`, but options
        of this engine that are not at their defaults must be those of the plan."""
        return self._loaded(bytes(data))

    def prepare(self, text: str) -> Any:
        """The handle of a prepared call. Errors of unsupported problems carry ``declines``."""
        try:
            return _native.prepare(self.handle, text)
        except Unsupported as error:
            report = explain(text, ranks=self.ranks, options=self.options)
            error.declines = report.get("declines", [])
            raise

    def synchronize(self) -> None:
        """Waits for the device; raises GuardFailed when a promise did not hold since then."""
        _native.synchronize(self.handle)

    def counters(self) -> dict[str, int]:
        """Bytes sent by the last calls, launches, and plans found, built and evicted."""
        return dict(_native.counters(self.handle))


_alone: dict = {}
_of_groups: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()


def engine_of(
    group: Group = None, device: torch.device | str = "cpu", options: Options = Options()
) -> Engine:
    """The engine that `attention` uses for a group, device and options; made when first asked for,
    which is collective over the group, and kept as long as the group lives."""
    if not isinstance(options, Options):
        raise InvalidArgument(
            f"options is a {type(options).__name__}; it must be longspan.Options(...)"
        )
    group = process_group(group)
    engines = _alone if group is None else _of_groups.setdefault(group, {})
    key = (torch.device(device), options)
    engine = engines.get(key)
    if engine is None:
        engine = engines[key] = Engine(group, device, options)
    return engine
