"""Figures from rounds. A round holds one figure of every arm, taken right after each other."""

import statistics

median = statistics.median


def ratio(mine, other):
    """Median over rounds of this arm's time / the other's: below 1 is faster."""
    return median(a / b for a, b in zip(mine, other, strict=True))


def wins(mine, other):
    """ "k/n": faster in k of n rounds."""
    count = sum(a < b for a, b in zip(mine, other, strict=True))
    return f"{count}/{len(mine)}"


def spread(values):
    """Largest over smallest."""
    return max(values) / min(values)
