"""In which order arms take turns, so that no arm gains from its place or its neighbour."""

import itertools

MOST_PERMUTED = 3


def williams(count):
    """Orders of 0..count-1 in which each arm stands in each place, and right after each other arm,
    equally often: `count` orders, twice as many for an odd count."""
    zigzag = [0]
    for step in range(1, count):
        zigzag.append((step + 1) // 2 if step % 2 else count - step // 2)
    rows = [[(place + row) % count for place in zigzag] for row in range(count)]
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


def balanced_orders(arms):
    """All permutations of up to three arms; balanced orders of more."""
    if len(arms) <= MOST_PERMUTED:
        return [list(order) for order in itertools.permutations(arms)]
    return [[arms[i] for i in row] for row in williams(len(arms))]


def is_complete(log, arms):
    """Whether a log of orders holds each balanced order equally often, at least once."""
    wanted = sorted(balanced_orders(sorted(arms)))
    repeats, rest = divmod(len(log), len(wanted))
    return rest == 0 and repeats > 0 and sorted(map(list, log)) == sorted(wanted * repeats)
