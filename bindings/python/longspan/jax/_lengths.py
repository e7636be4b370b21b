"""Lengths of the sequences, which are known when a program is traced."""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import jax
import numpy as np

from longspan._errors import InvalidArgument
from longspan._problem import lengths_from_cumulative

Integers: TypeAlias = Sequence[int] | np.ndarray

LAYOUTS = ("bshd", "sbhd", "thd")


def host_values(values, name: str) -> tuple[int, ...]:
    """The integers of a list or array."""
    if isinstance(values, jax.core.Tracer):
        raise InvalidArgument(
            f"{name} is traced; it must be known when the program is traced, as tiles and messages "
            "are cut to the lengths: pass a tuple or a numpy array (through static_argnums, or "
            "closed over), and pad to few different lengths so that programs are reused"
        )
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgument(f"{name} is {values!r}; it must be a list of integers")
    return tuple(int(value) for value in array)


def packed_lengths(cumulative, name: str) -> tuple[int, ...]:
    """Lengths from where each sequence begins and the end."""
    return tuple(lengths_from_cumulative(host_values(cumulative, name), name))


@dataclasses.dataclass(frozen=True)
class Side:
    """The sequences of queries, or of keys, over all ranks.

    Attributes:
        lengths: valid tokens.
        padded: rows that each sequence takes up.
        tokens: rows of the packed tensor; None where the sequences fill it.
    """

    lengths: tuple[int, ...]
    padded: tuple[int, ...]
    tokens: int | None = None


def _packed(rows: int, ranks: int, lengths, cumulative, names) -> Side:
    if cumulative is not None:
        lengths = packed_lengths(cumulative, names[1])
    elif lengths is None:
        lengths = (rows * ranks,)
    total = sum(lengths)
    if ranks > 1 or total == rows:
        return Side(lengths, lengths)
    if total > rows:
        raise InvalidArgument(f"{names[0]} add up to {total} tokens; the tensor has {rows} rows")
    return Side(lengths, lengths, rows)


def side_of(extents, layout: str, ranks: int, lengths, cumulative, names) -> Side:
    """The sequences of a tensor of these extents.

    Args:
        ranks: that each hold a tensor like this.
        lengths, cumulative: as the caller gave them, or None.
        names: of the two arguments.
    """
    if lengths is not None and cumulative is not None:
        raise InvalidArgument(f"{names[0]} and {names[1]} say the same: give one of them")
    if lengths is not None:
        lengths = host_values(lengths, names[0])
    if layout == "thd":
        return _packed(extents[0], ranks, lengths, cumulative, names)
    if cumulative is not None:
        raise InvalidArgument(f"{names[1]} needs layout='thd'; with {layout} give {names[0]}")
    batch, seq = extents[:2] if layout == "bshd" else (extents[1], extents[0])
    padded = (seq * ranks,) * batch
    if lengths is None:
        return Side(padded, padded)
    if len(lengths) != batch or any(n < 0 or n > seq * ranks for n in lengths):
        raise InvalidArgument(
            f"{names[0]} is {list(lengths)}; it takes {batch} entries from 0 to {seq * ranks}"
        )
    return Side(lengths, padded)
