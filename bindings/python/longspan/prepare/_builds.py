"""Which builds a problem needs. Pure functions of the problem text."""

import dataclasses
from collections.abc import Iterable, Sequence

from ._errors import Refused

# FlashAttention-4 on compute capability 9.0: equal dims, and 192 with 128. Others go to FROST.
_FA4_MOST = 256
_FA4_UNEQUAL = {(192, 128)}
_FROST_MOST = 512


@dataclasses.dataclass(frozen=True)
class Build:
    """One shared object. Heads, tokens and lengths are what FROST fixes; 0 and False for FA4."""

    engine: str  # "fa4" or "frost"
    direction: str  # "forward" or "backward"
    dtype: str  # "f16" or "bf16"
    dim: int
    dim_v: int
    group: int  # query heads of a key head
    mask: str  # "full", "causal" or "window"
    layout: str = "dense"  # or "packed"
    deterministic: bool = False
    heads_q: int = 0
    heads_kv: int = 0
    tokens_q: int = 0
    tokens_k: int = 0
    lengths: bool = False

    @property
    def name(self) -> str:
        """Unique among builds, and a prefix of its symbols."""
        dims = f"d{self.dim}" if self.dim == self.dim_v else f"d{self.dim}v{self.dim_v}"
        parts = [self.engine, self.direction, self.dtype, dims, f"g{self.group}", self.mask]
        if self.engine == "frost":
            parts += [f"h{self.heads_q}x{self.heads_kv}", f"s{self.tokens_q}x{self.tokens_k}"]
        parts += ["packed"] * (self.layout == "packed")
        parts += ["det"] * self.deterministic + ["lengths"] * self.lengths
        return "_".join(parts)


def _fields(problem: str) -> dict[str, str]:
    words = problem.split()
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    if len(fields) != len(words):
        raise Refused(f"'{problem}' is no problem text: key=value words are needed")
    missing = {"dtype", "heads", "dim", "lengths"} - fields.keys()
    if missing:
        raise Refused(f"'{problem}' lacks {', '.join(sorted(missing))}")
    return fields


def _number(fields: dict[str, str], key: str, standard: int | None = None) -> int:
    text = fields.get(key)
    if text is None and standard is not None:
        return standard
    try:
        return int(text)
    except (TypeError, ValueError):
        raise Refused(f"{key}={text} is no number") from None


def _numbers(fields: dict[str, str], key: str, standard: str | None = None) -> list[int]:
    text = fields.get(key, standard)
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise Refused(f"{key}={text} is no list of numbers") from None


def _heads(fields: dict[str, str]) -> tuple[int, int]:
    queries, _, keys = fields["heads"].partition("/")
    try:
        pair = int(queries), int(keys or queries)
    except ValueError:
        raise Refused(f"heads={fields['heads']} is no pair of numbers") from None
    if min(pair) < 1 or pair[0] % pair[1] != 0:
        raise Refused(f"heads={fields['heads']}: {pair[1]} does not divide {pair[0]}")
    return pair


def _engine(dim: int, dim_v: int) -> str:
    if dim % 8 or dim_v % 8:
        raise Refused(f"dim={dim} dim_v={dim_v}: multiples of 8 can be prepared")
    if dim == dim_v <= _FA4_MOST or (dim, dim_v) in _FA4_UNEQUAL:
        return "fa4"
    if max(dim, dim_v) <= _FROST_MOST:
        return "frost"
    raise Refused(f"dim={dim} dim_v={dim_v}: more than {_FROST_MOST}, which no engine computes")


def _of_frost(common: dict, fields: dict[str, str], directions: Sequence[str]) -> list[Build]:
    if "forward" not in directions:
        return []
    if "window" in fields:
        raise Refused("window: FROST fixes a window's widths when it is built; none is prepared")
    heads_q, heads_kv = _heads(fields)
    queries = _numbers(fields, "lengths")
    keys = _numbers(fields, "kv_lengths", fields["lengths"])
    fixed = dict(common, direction="forward", heads_q=heads_q, heads_kv=heads_kv)
    # Any rows up to those of all sequences; and a faster build where one sequence is all there is.
    any_rows = dict(fixed, tokens_q=sum(queries), tokens_k=sum(keys), lengths=True)
    builds = [Build(mask=mask, **any_rows) for mask in ("full", "causal")]
    if len(queries) == 1:
        exact = dict(fixed, tokens_q=queries[0], tokens_k=keys[0])
        mask = "causal" if fields.get("mask") == "causal" else "full"
        builds.append(Build(mask=mask, **exact))
    return builds


def _of_fa4(common: dict, fields: dict[str, str], directions: Sequence[str]) -> list[Build]:
    masks = ["full", "causal"] + ["window"] * ("window" in fields)
    several = len(set(_numbers(fields, "lengths"))) > 1
    deterministic = fields.get("deterministic") == "true"
    builds = []
    for direction in directions:
        if direction == "backward" and common["group"] > 1 and common["dim"] != common["dim_v"]:
            continue  # which it has not
        fixed = direction == "backward" and deterministic
        # The deterministic backward of packed rows has turns of another form.
        layouts = ["dense"] + ["packed"] * (several and not fixed)
        builds += [
            Build(direction=direction, mask=mask, layout=layout, deterministic=fixed, **common)
            for layout in layouts
            for mask in masks
        ]
    return builds


def builds_of(problems: Iterable[str], directions: Sequence[str]) -> list[Build]:
    """What the problems need, without repetition. A ring's steps see all keys or the causal part of
    them, so a causal problem needs both. Directions that an engine has not are left out: FROST's
    backward, and FlashAttention-4's of unequal dims where query heads share key heads.
    ``Refused`` names the key that cannot be prepared."""
    builds: dict[Build, None] = {}
    for problem in problems:
        fields = _fields(problem)
        if fields["dtype"] not in ("f16", "bf16"):
            raise Refused(f"dtype={fields['dtype']}: f16 and bf16 can be prepared")
        heads_q, heads_kv = _heads(fields)
        dim = _number(fields, "dim")
        dim_v = _number(fields, "dim_v", dim)
        engine = _engine(dim, dim_v)
        common = {
            "engine": engine,
            "dtype": fields["dtype"],
            "dim": dim,
            "dim_v": dim_v,
            "group": heads_q // heads_kv,
        }
        of_engine = _of_fa4 if engine == "fa4" else _of_frost
        builds.update(dict.fromkeys(of_engine(common, fields, directions)))
    return list(builds)
