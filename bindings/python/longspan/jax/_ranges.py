"""Rows that differ from rank to rank, as tables that one program can look up."""

import jax
import jax.numpy as jnp
import numpy as np

_BEYOND = np.iinfo(np.int32).max


class Ranges:
    """Ranges of rows, by rank: rows [source, source + count) of an array are rows
    [target, target + count) of another one. Both ascend."""

    def __init__(self, by_rank):
        most = max((len(ranges) for ranges in by_rank), default=0)
        table = np.full((3, len(by_rank), max(most, 1)), _BEYOND, np.int32)
        table[2] = 0
        for rank, ranges in enumerate(by_rank):
            if ranges:
                table[:, rank, : len(ranges)] = np.asarray(ranges).T
        self._sources, self._targets, self._counts = table

    def is_identity(self, rows: int) -> bool:
        """Whether all ``rows`` rows of every rank are where they were."""
        return (
            self._sources.shape[1] == 1
            and not self._sources.any()
            and not self._targets.any()
            and bool((self._counts == rows).all())
        )

    def take(self, rank, x, rows: int):
        """[rows, ...] of the other array from x; what no range fills is arbitrary."""
        if rows == x.shape[0] and self.is_identity(rows):
            return x
        sources, targets = (jnp.asarray(t)[rank] for t in (self._sources, self._targets))
        place = jnp.arange(rows, dtype=jnp.int32)
        at = _last_begun(targets, rows)
        return jnp.take(x, sources[at] + place - targets[at], axis=0, mode="clip")

    def give_back(self, rank, y, rows: int):
        """The reverse: [rows, ...] with those of y where they came from, 0 elsewhere."""
        if rows == y.shape[0] and self.is_identity(rows):
            return y
        sources, targets, counts = self._at(rank)
        place = jnp.arange(rows, dtype=jnp.int32)
        at = _last_begun(sources, rows)
        found = jnp.where(self._covers(sources, counts, at, place),
                          targets[at] + place - sources[at], _BEYOND)
        return jnp.take(y, found, axis=0, mode="fill", fill_value=0)

    def covered(self, rank, rows: int):
        """Of each of ``rows`` rows of the first array whether a range has it."""
        sources, _, counts = self._at(rank)
        place = jnp.arange(rows, dtype=jnp.int32)
        return self._covers(sources, counts, _last_begun(sources, rows), place)

    def _at(self, rank):
        return [jnp.asarray(t)[rank] for t in (self._sources, self._targets, self._counts)]

    @staticmethod
    def _covers(sources, counts, at, place):
        return (place >= sources[at]) & (place - sources[at] < counts[at])


def _last_begun(begins, rows: int) -> jax.Array:
    """The last range that begins at or before each row (the first where none does).

    NOTE: not by jnp.searchsorted, which JAX 0.10 cannot trace where some mesh axes are automatic.
    """
    begun = jnp.zeros(rows, jnp.int32).at[begins].add(1, mode="drop")
    return jnp.maximum(jnp.cumsum(begun) - 1, 0)
