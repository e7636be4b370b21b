"""The problem text from keyword arguments."""

import math
import operator
from collections.abc import Sequence

from longspan._errors import InvalidArgument
from longspan._native import canonical_problem

__all__ = ["canonical_problem", "problem_text"]


def integers(values: Sequence[int], name: str) -> list[int]:
    """A list, array or tensor of integers as a list; refuses what would have to be rounded."""
    try:
        values = values.tolist() if hasattr(values, "tolist") else values
        return [operator.index(value) for value in values]
    except TypeError:
        raise InvalidArgument(f"{name} is {values!r}; it must be a list of integers") from None


def number(value, name: str) -> float:
    """A number as a float."""
    try:
        # NOTE: torch.compile traces a float that changes as a symbol; its parts are constants.
        fraction, exponent = math.frexp(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is {value!r}; it must be a number") from None
    return math.ldexp(fraction, exponent)


def _list(values: Sequence[int], name: str) -> str:
    return ",".join(str(value) for value in integers(values, name))


def lengths_from_cumulative(cumulative: Sequence[int] | None, name: str) -> list[int] | None:
    """Lengths from where each sequence begins and the end, [sequences + 1]; None of None."""
    if cumulative is None:
        return None
    ends = integers(cumulative, name)
    if len(ends) < 2 or ends[0] != 0:
        raise InvalidArgument(
            f"{name} must begin with 0 and have one entry more than there are sequences; it is "
            f"{ends}"
        )
    lengths = [end - begin for begin, end in zip(ends, ends[1:])]
    if min(lengths) < 0:
        raise InvalidArgument(f"{name} must not fall; it is {ends}")
    return lengths


def bias_key(bias) -> str | None:
    """How the problem text names the shape of a bias, which is an array of any kind; None of
    None."""
    if bias is None:
        return None
    shape = tuple(getattr(bias, "shape", ()))
    if len(shape) != 4:
        raise InvalidArgument(
            f"bias has {len(shape)} extents, {list(shape)}; it takes 4: [batch or 1, heads or 1, "
            "seq_q, seq_k]"
        )
    if shape[:3] == (1, 1, 1):
        return "1,1,1,s"
    return f"{'1' if shape[0] == 1 else 'b'},{'1' if shape[1] == 1 else 'h'}"


def _window(window: tuple[int, int] | int) -> str:
    sides = integers((window, window) if isinstance(window, int) else window, "window")
    if len(sides) != 2 or min(sides) < -1:
        raise InvalidArgument(
            f"window is {window!r}; it must be (left, right) keys beside a query's own, or one "
            "number for both; -1 is unbounded"
        )
    return f"{sides[0]},{sides[1]}"


def _heads(heads: tuple[int, int]) -> str:
    pair = integers(heads, "heads")
    if len(pair) != 2:
        raise InvalidArgument(f"heads is {heads!r}; it must be (of queries, of keys and values)")
    return f"{pair[0]}/{pair[1]}"


def _check_alignment(keys: dict, banded: bool) -> None:
    if banded and keys["align"] is None and keys["kv_lengths"] not in (None, keys["lengths"]):
        raise InvalidArgument(
            "align is not given, but query and key lengths differ and the mask is causal or a "
            "window: say align='top_left' (query 0 sees key 0) or align='bottom_right' (the last "
            "query sees the last key, as FlashAttention does)"
        )


def problem_text(
    *,
    dtype: str,
    heads: tuple[int, int],
    dim: int,
    lengths: Sequence[int],
    kv_lengths: Sequence[int] | None = None,
    dim_v: int | None = None,
    layout: str | None = None,
    causal: bool = False,
    align: str | None = None,
    window: tuple[int, int] | int | None = None,
    prefix: Sequence[int] | None = None,
    chunk: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: bool = False,
    bias: str | None = None,
    sink: str | None = None,
    dropout: float = 0.0,
    max_logit: bool = False,
    deterministic: bool = False,
    device_lengths: bool = False,
    padded: Sequence[int] | None = None,
    kv_padded: Sequence[int] | None = None,
) -> str:
    """The text of a problem (docs/reference/problem_text.md), not yet checked.

    Args:
        dtype: f64, f32, f16 or bf16.
        heads: of queries, and of keys and values.
        dim: of q and k; dim_v of v and o where it differs.
        lengths: query tokens of each sequence, over all ranks.
        kv_lengths: key tokens of each sequence where they differ.
        layout: bshd, sbhd or thd.
        causal: queries see no later key.
        align: top_left or bottom_right; needed where lengths differ and a mask depends on it.
        window: (left, right) keys that a query sees beside its own; -1 is unbounded.
        bias: shape of the additive bias: "1,1", "b,1", "1,h", "b,h" or "1,1,1,s".
        sink: off_by_one or learnable.
    """
    if alibi not in (True, False):
        raise InvalidArgument(f"alibi is {alibi!r}; a problem has it (True) or not (False)")
    keys = {
        "dtype": dtype,
        "heads": _heads(heads),
        "dim": dim,
        "lengths": _list(lengths, "lengths"),
        "mask": "causal" if causal else "none",
        "dim_v": dim_v,
        "kv_lengths": None if kv_lengths is None else _list(kv_lengths, "kv_lengths"),
        "align": align,
        "window": None if window is None else _window(window),
        "padded": None if padded is None else _list(padded, "padded"),
        "kv_padded": None if kv_padded is None else _list(kv_padded, "kv_padded"),
        "layout": layout,
        "scale": None if scale is None else repr(number(scale, "scale")),
        "softcap": repr(number(softcap, "softcap")) if softcap else None,
        "alibi": "default" if alibi else None,
        "bias": bias,
        "sink": sink,
        "dropout": repr(number(dropout, "dropout")) if dropout else None,
        "max_logit": "true" if max_logit else None,
        "deterministic": "true" if deterministic else None,
        "device_lengths": "true" if device_lengths else None,
        "prefix": None if prefix is None else _list(prefix, "prefix"),
        "chunk": integers([chunk], "chunk")[0] or None,
    }
    _check_alignment(keys, causal or window is not None)
    return " ".join(f"{key}={value}" for key, value in keys.items() if value is not None)
