"""Which rows each device of a mesh axis holds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longspan._errors import InvalidArgument
from longspan._problem import canonical_problem, problem_text
from longspan.jax import _library
from longspan.jax._lengths import Integers, packed_lengths


class Plan:
    """How a sequence, or a pack of them, is dealt to the devices of an axis.

    All devices hold equally many rows, as ``shard_map`` asks for: shards that would be smaller are
    padded at their end, and a dense sequence is padded to a multiple of the devices first.

    Attributes:
        ranks: devices on the axis.
        partition: "contiguous", "zigzag", "striped" or "balanced".
        reason: why this one, where it was chosen.
    """

    def __init__(
        self,
        ranks: int,
        *,
        seq: int | None = None,
        kv_seq: int | None = None,
        cu_seqlens: Integers | None = None,
        cu_seqlens_kv: Integers | None = None,
        partition: str = "auto",
        causal: bool = False,
        align: str | None = None,
        window: tuple[int, int] | int | None = None,
        prefix: Integers | None = None,
        chunk: int = 0,
    ):
        """A dense sequence of ``seq`` queries, or a pack that ``cu_seqlens`` cuts up.

        The other arguments are those of ``attention``: partitions share the work that a mask
        leaves. With ``seq``, ``prefix`` has one entry.
        """
        if (seq is None) == (cu_seqlens is None):
            raise InvalidArgument("a Plan takes either seq or cu_seqlens")
        beside = "kv_seq" if seq is None else "cu_seqlens_kv"
        if (kv_seq if seq is None else cu_seqlens_kv) is not None:
            raise InvalidArgument(
                f"{beside} is given, and queries by {'cu_seqlens' if seq is None else 'seq'}; say "
                "both sides alike"
            )
        if not isinstance(ranks, int) or ranks < 1:
            raise InvalidArgument(f"ranks is {ranks!r}; it must be an integer from 1")
        packed = seq is None
        self._mask = {"causal": causal, "align": align, "window": window, "chunk": chunk}
        self._mask = {key: value for key, value in self._mask.items() if value}
        self._prefix = prefix
        self._cumulative = (cu_seqlens, cu_seqlens_kv)
        if packed:
            lengths = packed_lengths(cu_seqlens, "cu_seqlens")
            kv_lengths = lengths
            if cu_seqlens_kv is not None:
                kv_lengths = packed_lengths(cu_seqlens_kv, "cu_seqlens_kv")
            padded, kv_padded = lengths, kv_lengths
        else:
            lengths, kv_lengths = (seq,), (seq if kv_seq is None else kv_seq,)
            padded, kv_padded = ((-(-n[0] // ranks) * ranks,) for n in (lengths, kv_lengths))
        text = canonical_problem(
            problem_text(
                dtype="f32", heads=(1, 1), dim=1, lengths=lengths, kv_lengths=kv_lengths,
                padded=padded, kv_padded=kv_padded, layout="thd" if packed else "bshd",
                prefix=prefix, **self._mask,
            )
        )
        self._deal(ranks, partition, packed, {"q": lengths, "k": kv_lengths}, text)

    def _deal(self, ranks: int, partition: str, packed: bool, lengths: dict, text: str) -> None:
        """``lengths`` are those of one dense sequence, or of a pack; ``text`` is its problem."""
        self.ranks = ranks
        self._packed = packed
        self._lengths = lengths
        self._shards = _library.shards(text, f"ranks={ranks} partition={partition}")
        self.partition = self._shards["partition"]
        self.reason = self._shards["reason"]

    def rows(self, side: str = "q") -> int:
        """Rows that every device holds, padding included. ``side`` is q (also o) or k (also v)."""
        self._check_side(side)
        return max(shard["rows"] for shard in self._shards[side])

    def indices(self, side: str = "q") -> np.ndarray:
        """The global row of each row of all devices, device by device; -1 for padding."""
        return self._table(side, column=1, padding=-1)

    def positions(self, side: str = "q") -> np.ndarray:
        """The position inside its sequence of each row of all devices, for RoPE; 0 for padding."""
        return self._table(side, column=2, padding=0)

    def shard(self, x: jax.Array, side: str = "q", axis: int | None = None) -> jax.Array:
        """A global array in the order in which devices hold its rows, to be cut into equal parts
        by ``shard_map`` (``PartitionSpec`` with the mesh axis at ``axis``). Padding is 0.

        Args:
            axis: of the rows; 1 with ``seq``, 0 with ``cu_seqlens`` by default.
        """
        axis = self._axis(axis)
        self._check_side(side)
        self._check(x, axis, sum(self._lengths[side]))
        indices = self.indices(side)
        inside = (indices >= 0) & (indices < x.shape[axis])
        return jnp.take(x, np.where(inside, indices, x.shape[axis]), axis=axis, mode="fill",
                        fill_value=0)

    def unshard(self, x: jax.Array, side: str = "q", axis: int | None = None) -> jax.Array:
        """The reverse of ``shard``."""
        axis = self._axis(axis)
        indices = self.indices(side)
        self._check(x, axis, len(indices))
        places = np.zeros(sum(self._lengths[side]), np.int32)
        inside = (indices >= 0) & (indices < len(places))
        places[indices[inside]] = np.flatnonzero(inside)
        return jnp.take(x, places, axis=axis)

    def arguments(self, batch: int = 1) -> dict[str, Any]:
        """What ``attention`` must be told beside q, k, v and the axis: partition, mask and
        lengths; ``batch`` sequences where the plan is dense."""
        arguments = {"partition": self.partition, **self._mask}
        if self._packed:
            arguments["layout"] = "thd"
            arguments["cu_seqlens"], arguments["cu_seqlens_kv"] = self._cumulative
        else:
            arguments["lengths"] = self._lengths["q"] * batch
            arguments["kv_lengths"] = self._lengths["k"] * batch
        if self._prefix is not None:
            arguments["prefix"] = tuple(self._prefix) * (1 if self._packed else batch)
        return arguments

    def _axis(self, axis: int | None) -> int:
        return (0 if self._packed else 1) if axis is None else axis

    def _check_side(self, side: str) -> None:
        if side not in self._lengths:
            raise InvalidArgument(f"side is {side!r}; it must be 'q' (also o) or 'k' (also v)")

    def _check(self, x, axis: int, rows: int) -> None:
        if x.shape[axis] != rows:
            raise InvalidArgument(
                f"the array is {list(x.shape)} with rows at axis {axis}; this plan takes {rows}"
            )

    def _table(self, side: str, column: int, padding: int) -> np.ndarray:
        rows = self.rows(side)
        table = np.full((self.ranks, rows), padding, np.int32)
        for rank, shard in enumerate(self._shards[side]):
            for run in shard["runs"]:
                row, size = run[0], run[4]
                table[rank, row : row + size] = run[column] + run[3] * np.arange(size)
        return table.reshape(-1)
