"""A prepared problem: what runs, which rows this rank holds, and the calls themselves."""

import contextlib
import functools
import itertools
import math
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from longspan import _native
from longspan._errors import Unsupported
from longspan.torch._group import Group
from longspan.torch._shard import shard, unshard

if TYPE_CHECKING:
    from longspan.torch._engine import Engine

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}

_numbers = itertools.count()
NUMBERED: "weakref.WeakValueDictionary[int, Plan]" = weakref.WeakValueDictionary()


@contextlib.contextmanager
def _no_modes():
    """What is made here is kept, and used under any mode: it is made under none."""
    with _disable_current_modes(), torch.inference_mode(False):
        yield


def _written(count: int, write) -> torch.Tensor:
    """int64 [count] on the CPU that ``write`` fills."""
    with _no_modes():
        rows = torch.empty(count, dtype=torch.int64, device="cpu")
        write(rows)
    return rows


class Plan:
    """A problem that all ranks agreed on. Immutable; keep it and pass it to `attention`.

    Attributes:
        accumulator: type of statistics and of values per head.
        number: names the plan in traced graphs, while it lives.
        problem: the canonical problem text.
        packed: whether tensors are [tokens, ...] instead of [batch, seq, ...].
        partition: contiguous, zigzag, striped or balanced: which rank owns which rows.
        forward, backward: (strategy, why, provider, why); backward is None for forward alone.
        extents: how many a tensor has.
        plain: whether a call needs nothing but q, k and v.
        saved_bytes: what forward keeps for backward beside inputs and outputs.
        kept_bytes: the same with lse behind it: what calls of plain plans keep.
        workspace_bytes: of forward and of backward.
    """

    def __init__(self, engine: "Engine", call: Any):
        """`Engine.plan` and `from_bytes` make plans."""
        self.engine = engine
        self.number = next(_numbers)
        NUMBERED[self.number] = self
        self.ranks = engine.ranks
        self.call = call
        facts = _native.describe(self.call)
        self.problem = str(facts["problem"])
        self.partition = str(facts["partition"])
        self.forward = tuple(map(str, facts["forward"]))
        self.backward = tuple(map(str, facts["backward"])) if "backward" in facts else None
        self.workspace_bytes = (
            int(facts["forward_workspace"]),
            int(facts.get("backward_workspace", 0)),
        )
        self.saved_bytes = int(facts["saved_bytes"])
        self.kept_bytes = int(facts["kept_bytes"])
        self.dtype = str(facts["dtype"])
        self.packed = facts["layout"] == "thd"
        self.heads, self.kv_heads = map(int, facts["heads"])
        self.dim, self.dim_v = map(int, facts["dims"])
        self.sequences = int(facts["sequences"])
        self.tokens = dict(zip("qk", map(int, facts["tokens"])))
        self.scale = float(facts["scale"])
        self.dropout = float(facts["dropout"])
        self.alibi = bool(facts["alibi"])
        self.sink = str(facts["sink"])
        self.max_logit = bool(facts["max_logit"])
        self.extents = 3 if self.packed else 4
        self.plain = not (self.dropout or self.max_logit)
        self.accumulator = torch.float64 if self.dtype == "f64" else torch.float32
        self._row_maps: dict = {}

    def __deepcopy__(self, _memo) -> "Plan":
        return self  # copies of a model share what cannot change

    def __copy__(self) -> "Plan":
        return self

    def __reduce__(self):
        if self.engine.group is not None:
            raise Unsupported(
                "a plan of a group cannot be pickled; keep its to_bytes(), and make it again by "
                "from_bytes(data, group)"
            )
        return Plan.from_bytes, (self.to_bytes(), None, str(self.engine.device))

    @functools.cached_property
    def memory(self):
        """Makes a tensor of so many bytes on the engine's device. Asked for by plain calls alone,
        whose tensors no mode watches: under fake tensors it would be fake for good."""
        return torch.empty(0, dtype=torch.uint8, device=self.engine.device).new_empty

    def to_bytes(self) -> bytes:
        """The plan for `from_bytes`, here or elsewhere, in any front end of longspan; the same on
        every rank. Raises `longspan.Unsupported` where a provider chooses anew in every process.
        """
        return bytes(_native.plan_bytes(self.call))

    @staticmethod
    def from_bytes(
        data: bytes, group: Group = None, device: torch.device | str = "cpu"
    ) -> "Plan":
        """The plan that `to_bytes` wrote, on the engine of a group and device (`engine_of`).
        Collective when it is new.

        Nothing is chosen anew. Raises `longspan.InvalidArgument` for bytes that are damaged, and
        for plans of other ranks, devices, providers or versions of longspan.
        """
        from longspan.torch._engine import engine_of

        return engine_of(group, device).load(data)

    def local_shape(self, side: str = "q") -> tuple[int, int]:
        """(batch, seq) of this rank's tensors: ``side`` is q (also o) or k (also v)."""
        return tuple(_native.shard_shape(self.call, side, self.engine.rank))

    def indices(self, side: str = "q", rank: int | None = None) -> torch.Tensor:
        """The global row (batch-major) of each local row; int64 on the CPU."""
        return self._rows(_native.shard_indices, side, rank)

    def positions(self, side: str = "q", rank: int | None = None) -> torch.Tensor:
        """The position inside its sequence of each local row, for RoPE; int64 on the CPU."""
        return self._rows(_native.shard_positions, side, rank)

    def _rows(self, write, side, rank):
        rank = self.engine.rank if rank is None else rank
        count = math.prod(_native.shard_shape(self.call, side, rank))
        return _written(count, lambda rows: write(self.call, side, rank, rows))

    def rows_of(self, side: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """On ``device``: global rows of this rank's rows, and the place of each global row in the
        concatenation of all ranks' rows."""
        maps = self._row_maps
        if (side, device) not in maps:
            inverse = _written(
                self.tokens[side], lambda rows: _native.shard_inverse(self.call, side, rows)
            )
            with _no_modes():
                maps[side, device] = (self.indices(side).to(device), inverse.to(device))
        return maps[side, device]

    def shard(self, whole: torch.Tensor, side: str = "q") -> torch.Tensor:
        """This rank's rows of a tensor that every rank has whole. Differentiable: the gradient of
        the whole tensor has this rank's rows alone; the sum over ranks is the gradient, as with
        every parameter that all ranks hold.

        Args:
            whole: [batch, seq, ...], or [tokens, ...] for packed problems.
        """
        return shard(self, whole, side)

    def unshard(self, local: torch.Tensor, side: str = "q") -> torch.Tensor:
        """The whole tensor from all ranks' rows; collective, the inverse of `shard`.
        Differentiable: the gradient is summed over ranks, as each may use the whole tensor for a
        loss of its own.
        """
        return unshard(self, local, side)
