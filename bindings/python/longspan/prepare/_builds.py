"""Which builds a problem needs. Pure functions of the problem text."""

import dataclasses
from collections.abc import Iterable, Sequence

from ._errors import Refused
from ._problem import Problem, parse

# FlashAttention-4 on compute capability 9.0: equal dims, and 192 with 128. Others go to FROST.
_FA4_MOST = 256
_FA4_UNEQUAL = {(192, 128)}


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


def _bucket(rows: int) -> int:
    """The smallest of 64, 96, 128, 192, ... that holds the rows: plans are made for these."""
    size = 64
    while size < rows:
        if size // 2 * 3 >= rows:
            return size // 2 * 3
        size *= 2
    return size


def _of_frost(common: dict, problem: Problem, directions: Sequence[str]) -> list[Build]:
    if "forward" not in directions:
        return []
    if problem.window:
        raise Refused("window: FROST fixes a window's widths when it is built; none is prepared")
    fixed = dict(common, direction="forward", heads_q=problem.heads_q, heads_kv=problem.heads_kv)
    # Any rows up to those of a tensor; and a faster build where one sequence is all there is.
    tokens_q, tokens_k = _bucket(problem.rows_q), _bucket(problem.rows_k)
    any_rows = dict(fixed, tokens_q=tokens_q, tokens_k=tokens_k, lengths=True)
    builds = [Build(mask=mask, **any_rows) for mask in ("full", "causal")]
    queries, keys = problem.queries[0], problem.keys[0]
    if len(problem.queries) == 1 and min(queries, keys) > 0:
        mask = "causal" if problem.causal else "full"
        builds.append(Build(mask=mask, tokens_q=queries, tokens_k=keys, **fixed))
    return builds


def _of_fa4(common: dict, problem: Problem, directions: Sequence[str]) -> list[Build]:
    masks = ["full", "causal"] + ["window"] * problem.window
    several = len(set(zip(problem.queries, problem.keys))) > 1
    builds = []
    for direction in directions:
        if direction == "backward" and common["group"] > 1 and common["dim"] != common["dim_v"]:
            continue  # which it has not
        fixed = direction == "backward" and problem.deterministic
        # The deterministic backward of packed rows has turns of another form.
        layouts = ["dense"] + ["packed"] * (several and not fixed)
        builds += [
            Build(direction=direction, mask=mask, layout=layout, deterministic=fixed, **common)
            for layout in layouts
            for mask in masks
        ]
    return builds


def _of_problem(text: str, directions: Sequence[str]) -> list[Build]:
    problem = parse(text)
    dims = (problem.dim, problem.dim_v)
    fa4 = dims in _FA4_UNEQUAL or (problem.dim == problem.dim_v and problem.dim <= _FA4_MOST)
    common = {
        "engine": "fa4" if fa4 else "frost",
        "dtype": problem.dtype,
        "dim": problem.dim,
        "dim_v": problem.dim_v,
        "group": problem.heads_q // problem.heads_kv,
    }
    builds = (_of_fa4 if fa4 else _of_frost)(common, problem, directions)
    if not builds:
        raise Refused(
            f"{common['engine']} has no {' or '.join(directions)} of dim {problem.dim}, dim_v "
            f"{problem.dim_v}, {common['group']} query heads a key head: '{text}'"
        )
    return builds


def builds_of(problems: Iterable[str], directions: Sequence[str]) -> list[Build]:
    """What the problems need, without repetition. A ring's steps see all keys or the causal part of
    them, so a causal problem needs both. Directions that an engine has not are left out where it
    has the other: FROST's backward, and FlashAttention-4's of unequal dims where query heads share
    key heads. ``Refused`` names the key that cannot be prepared."""
    builds: dict[Build, None] = {}
    for text in problems:
        builds.update(dict.fromkeys(_of_problem(text, directions)))
    return list(builds)
