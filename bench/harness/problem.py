"""What a problem text counts: pairs, FLOPs, bytes of its tensors."""

import dataclasses

FLOAT_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
DIRECTIONS = ("forward", "backward", "both")
UNBOUNDED = -1


@dataclasses.dataclass(frozen=True)
class Problem:
    """The keys that decide what is computed. `q_lengths` and `k_lengths`: one per sequence."""

    dtype: str
    heads_q: int
    heads_kv: int
    dim: int
    dim_v: int
    q_lengths: tuple
    k_lengths: tuple
    causal: bool
    bottom_right: bool
    window: tuple  # (left, right), -1: unbounded
    other: dict  # keys with no meaning here


def integers(text):
    return tuple(int(word) for word in text.split(","))


def parse(text):
    keys = dict(word.split("=", 1) for word in text.split())
    heads_q, heads_kv = (int(word) for word in keys.pop("heads").split("/"))
    dim = int(keys.pop("dim"))
    lengths = integers(keys.pop("lengths"))
    mask = keys.pop("mask", "none")
    align = keys.pop("align", "top_left")
    return Problem(
        dtype=keys.pop("dtype"),
        heads_q=heads_q,
        heads_kv=heads_kv,
        dim=dim,
        dim_v=int(keys.pop("dim_v", dim)),
        q_lengths=lengths,
        k_lengths=integers(keys.pop("kv_lengths", ",".join(map(str, lengths)))),
        causal=mask in ("causal", "bottom_right"),
        bottom_right=mask == "bottom_right" or align == "bottom_right",
        window=integers(keys.pop("window", "-1,-1")),
        other=keys,
    )


def band(problem, q_length, k_length):
    """(lo, hi): query q sees key k when lo <= k - q <= hi; None: unbounded."""
    shift = k_length - q_length if problem.bottom_right else 0
    left, right = problem.window
    lo = None if left == UNBOUNDED else shift - left
    hi = None if right == UNBOUNDED else shift + right
    if problem.causal:
        hi = shift if hi is None else min(hi, shift)
    return lo, hi


def seen_before(offset, queries, keys):
    """Pairs with k - q < offset, k in [0, keys), q in [0, queries)."""
    total = 0
    # Query q sees clamp(q + offset, 0, keys) keys: a ramp between two constants.
    ramp_begin = min(max(0, -offset), queries)
    ramp_end = min(max(0, keys - offset), queries)
    if ramp_end > ramp_begin:
        first, last = ramp_begin + offset, ramp_end - 1 + offset
        total += (first + last) * (ramp_end - ramp_begin) // 2
    total += keys * (queries - max(ramp_end, 0))
    return total


def visible_pairs(problem):
    total = 0
    for queries, keys in zip(problem.q_lengths, problem.k_lengths):
        lo, hi = band(problem, queries, keys)
        if lo is not None and hi is not None and hi < lo:
            continue
        upper = queries * keys if hi is None else seen_before(hi + 1, queries, keys)
        total += upper - (0 if lo is None else seen_before(lo, queries, keys))
    return total


def flops(problem, direction):
    """Per visible pair and query head: forward 2 (dim + dim_v), backward 2 (3 dim + 2 dim_v)."""
    forward = 2 * (problem.dim + problem.dim_v)
    backward = 2 * (3 * problem.dim + 2 * problem.dim_v)
    per_pair = {"forward": forward, "backward": backward, "both": forward + backward}[direction]
    return per_pair * visible_pairs(problem) * problem.heads_q


def halved(text):
    """The same problem on half of each length; None where a length does not allow it."""
    words = []
    for word in text.split():
        key, _, value = word.partition("=")
        if key in ("lengths", "kv_lengths"):
            lengths = integers(value)
            if any(length % 8 for length in lengths):
                return None
            word = f"{key}={','.join(str(length // 2) for length in lengths)}"
        words.append(word)
    return " ".join(words)


def small_enough(text, most_flops):
    """The problem, or a shorter one of its kind where both directions count more FLOPs."""
    while flops(parse(text), "both") > most_flops:
        shorter = halved(text)
        if shorter is None:
            break
        text = shorter
    return text


def tensor_bytes(problem, forward_only=False):
    """Of q, k, v, o, lse and, with backward, dout, dq, dk, dv."""
    size = FLOAT_BYTES[problem.dtype]
    q_rows, k_rows = sum(problem.q_lengths), sum(problem.k_lengths)
    q = q_rows * problem.heads_q * problem.dim * size
    o = q_rows * problem.heads_q * problem.dim_v * size
    kv = k_rows * problem.heads_kv * (problem.dim + problem.dim_v) * size
    lse = q_rows * problem.heads_q * max(4, 8 if problem.dtype == "f64" else 4)
    return q + o + kv + lse if forward_only else 2 * (q + o + kv) + lse
