"""What a problem text says of kernels. The library reads it too; this package stands alone."""

import dataclasses
import re

from ._errors import Refused

_NEEDED = ("dtype", "heads", "dim", "lengths")
# Keys that decide nothing here: memory, values of a call, what longspan computes around kernels.
_ANY_VALUE = "align layout scale sink dropout_seed prefix chunk device_lengths".split()
# Keys that no engine computes, and the value that switches each off.
_OFF = {
    "softcap": "0",
    "alibi": "none",
    "bias": "none",
    "dropout": "0",
    "page": "0",
    "fp8": "none",
    "max_logit": "false",
}
_ROWS = ("padded", "tokens", "kv_padded", "kv_tokens")
_READ = (
    *(*_NEEDED, "dim_v", "kv_lengths", *_ROWS),
    *("mask", "window", "deterministic", "invariant"),
)
_MASKS = ("none", "causal", "bottom_right")
_FLAGS = ("false", "true")
_MOST_TOKENS = 1 << 31


@dataclasses.dataclass(frozen=True)
class Problem:
    """Lengths are those of each sequence, rows those of a tensor, with what lies unused. A window's
    widths are given when kernels run."""

    dtype: str
    heads_q: int
    heads_kv: int
    dim: int
    dim_v: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    rows_q: int
    rows_k: int
    causal: bool
    window: bool
    deterministic: bool


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise Refused(f"'{word}' is no key=value; a problem text has words of that form")
        if key in fields:
            raise Refused(f"{key} stands twice in '{text}'; once is allowed")
        if key not in (*_READ, *_ANY_VALUE, *_OFF):
            known = " ".join((*_READ, *_ANY_VALUE, *_OFF))
            raise Refused(f"{word}: the key {key} is unknown; known are {known}")
        fields[key] = value
    missing = [key for key in _NEEDED if key not in fields]
    if missing:
        raise Refused(f"'{text}' lacks {', '.join(missing)}")
    return fields


def _refuse_what_no_engine_computes(fields: dict[str, str]) -> None:
    for key, off in _OFF.items():
        value = fields.get(key, off)
        if value == off or (off == "0" and re.fullmatch(r"0+(\.0*)?", value)):
            continue
        raise Refused(f"{key}={value}: no engine computes {key}; drop it, or go without prepared")


def _choice(fields: dict[str, str], key: str, allowed: tuple[str, ...]) -> str:
    value = fields.get(key, allowed[0])
    if value not in allowed:
        raise Refused(f"{key}={value}: {', '.join(allowed)} are allowed")
    return value


def _numbers(key: str, text: str, separator: str, least: int, most: int) -> tuple[int, ...]:
    parts = text.split(separator)
    numbers = [int(part) if re.fullmatch(r"-?[0-9]{1,10}", part) else None for part in parts]
    if any(number is None or not least <= number <= most for number in numbers):
        raise Refused(f"{key}={text}: numbers from {least} to {most} are allowed")
    return tuple(numbers)


def _dim(key: str, text: str) -> int:
    dim = int(text) if re.fullmatch("[0-9]{1,3}", text) else 0
    if dim % 8 == 0 and 8 <= dim <= 512:
        return dim
    raise Refused(f"{key}={text}: multiples of 8 from 8 to 512 can be prepared")


def _heads(text: str) -> tuple[int, int]:
    heads = _numbers("heads", text, "/", 1, 1 << 20)
    if len(heads) > 2:
        raise Refused(f"heads={text}: query heads and key heads are allowed, as in 32/8")
    queries, keys = heads[0], heads[-1]
    if queries % keys:
        raise Refused(f"heads={text}: {keys} does not divide {queries}")
    return queries, keys


def _has_window(fields: dict[str, str]) -> bool:
    text = fields.get("window", "-1,-1")
    widths = _numbers("window", text, ",", -1, _MOST_TOKENS)
    if len(widths) != 2:
        raise Refused(f"window={text}: two widths are needed, as in 128,0")
    return max(widths) >= 0


def _lengths(fields: dict[str, str], key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    if key not in fields:
        return default
    lengths = _numbers(key, fields[key], ",", 0, _MOST_TOKENS)
    if default and len(lengths) != len(default):
        raise Refused(f"{key} has {len(lengths)} entries but lengths has {len(default)}")
    return lengths


def _rows(fields: dict[str, str], padded: str, tokens: str, lengths: tuple[int, ...]) -> int:
    extents = _lengths(fields, padded, lengths)
    if tokens not in fields:
        return sum(extents)
    return _numbers(tokens, fields[tokens], " ", sum(extents), _MOST_TOKENS)[0]


def parse(text: str) -> Problem:
    """``Refused`` names the key that is unknown, repeated, missing or of a value that is not
    allowed, or that no engine computes."""
    fields = _fields(text)
    _refuse_what_no_engine_computes(fields)
    if fields["dtype"] not in ("f16", "bf16"):
        raise Refused(f"dtype={fields['dtype']}: f16 and bf16 can be prepared")
    heads_q, heads_kv = _heads(fields["heads"])
    queries = _lengths(fields, "lengths", ())
    keys = _lengths(fields, "kv_lengths", queries)
    flags = [_choice(fields, key, _FLAGS) for key in ("deterministic", "invariant")]
    return Problem(
        dtype=fields["dtype"],
        heads_q=heads_q,
        heads_kv=heads_kv,
        dim=_dim("dim", fields["dim"]),
        dim_v=_dim("dim_v", fields.get("dim_v", fields["dim"])),
        queries=queries,
        keys=keys,
        rows_q=_rows(fields, "padded", "tokens", queries),
        rows_k=_rows(fields, "kv_padded", "kv_tokens", keys),
        causal=_choice(fields, "mask", _MASKS) != "none",
        window=_has_window(fields),
        deterministic="true" in flags,  # invariant results are deterministic ones
    )
