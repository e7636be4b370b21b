"""From attention()'s arguments to a problem text and values."""

from collections.abc import Sequence

import torch

from longspan._errors import InvalidArgument
from longspan._problem import lengths_from_cumulative, problem_text
from longspan.torch._plan import DTYPES


def check_tensors(layout: str, plan, *tensors: torch.Tensor) -> None:
    packed = layout == "thd" or (layout == "bshd" and plan is not None and plan.packed)
    extents = 3 if packed else 4
    for name, tensor in zip("qkv", tensors):
        if tensor.dim() != extents:
            raise InvalidArgument(
                f"{name} has {tensor.dim()} extents; layout '{layout}' takes {extents}"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise InvalidArgument(f"{name} lies on {tensor.device}; cpu and cuda are computed on")


def check_against_plan(plan, alibi, sinks, return_max_logit: bool) -> None:
    """What the library cannot see in the tensors that it is given."""
    asked = {
        "alibi=True": (alibi is True, plan.alibi, "alibi=True"),
        "sinks='off_by_one'": (sinks == "off_by_one", plan.sink == "off_by_one",
                               "sink='off_by_one'"),
        "return_max_logit": (return_max_logit, plan.max_logit, "max_logit=True"),
    }
    for name, (given, has, remedy) in asked.items():
        if given and not has:
            raise InvalidArgument(f"{name}, but the plan has not: prepare it with {remedy}")


def autocast(*tensors: torch.Tensor):
    """The tensors in autocast's type where it is on; float64 stays."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors)


def _host_lengths(lengths, cumulative, name: str) -> Sequence[int] | None:
    if lengths is not None and cumulative is not None:
        raise InvalidArgument(f"{name} are given twice: as lengths and as cumulative lengths")
    if lengths is not None:
        return [int(length) for length in lengths]
    return lengths_from_cumulative(cumulative, name)


def _extents(tensor: torch.Tensor, ranks: int) -> list[int]:
    """Whole extents of equal shards."""
    return [tensor.shape[1] * ranks] * tensor.shape[0]


def lengths_keys(q, k, lengths, kv_lengths, cu_seqlens, cu_seqlens_kv, packed: bool, ranks: int):
    """The keys lengths, kv_lengths, padded, kv_padded and layout of the problem."""
    lengths = _host_lengths(lengths, cu_seqlens, "lengths")
    kv_lengths = _host_lengths(kv_lengths, cu_seqlens_kv, "kv_lengths")
    if packed:
        if lengths is None:
            raise InvalidArgument("packed tensors (layout='thd') need cu_seqlens or lengths")
        return {"lengths": lengths, "kv_lengths": kv_lengths, "layout": "thd"}
    extents, kv_extents = _extents(q, ranks), _extents(k, ranks)
    if lengths is None and kv_lengths is None:
        return {"lengths": extents, "kv_lengths": kv_extents if kv_extents != extents else None}
    lengths = extents if lengths is None else lengths
    kv_lengths = lengths if kv_lengths is None and kv_extents == extents else kv_lengths
    kv_lengths = kv_extents if kv_lengths is None else kv_lengths
    return {"lengths": lengths, "kv_lengths": kv_lengths, "padded": extents,
            "kv_padded": kv_extents, "layout": "bshd"}


def sink_key(sinks) -> str | None:
    if sinks is None or isinstance(sinks, torch.Tensor):
        return None if sinks is None else "learnable"
    if sinks == "off_by_one":
        return "off_by_one"
    raise InvalidArgument(f"sinks is {sinks!r}; it must be a tensor [heads], 'off_by_one' or None")


def per_head(values, q: torch.Tensor) -> torch.Tensor | None:
    """Values per head in the type that the library takes; None where it has them itself."""
    if not isinstance(values, torch.Tensor):
        return None
    return values.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def problem_of(q, k, v, lengths: dict, **keys) -> str:
    types = {q.dtype, k.dtype, v.dtype}
    if len(types) > 1 or q.dtype not in DTYPES:
        raise InvalidArgument(
            f"q, k and v are of {q.dtype}, {k.dtype} and {v.dtype}; they must be of one type: "
            "float64, float32, float16 or bfloat16"
        )
    return problem_text(
        dtype=DTYPES[q.dtype],
        heads=(q.shape[-2], k.shape[-2]),
        dim=q.shape[-1],
        dim_v=v.shape[-1] if v.shape[-1] != q.shape[-1] else None,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        **lengths,
        **keys,
    )


def rng(given: tuple[int, int] | None, ranks: int) -> tuple[int, int]:
    """Seed and offset of the dropout mask."""
    if given is not None:
        seed, offset = map(int, given)
        if not (0 <= seed < 2**63 and 0 <= offset < 2**63):
            raise InvalidArgument(f"dropout_rng is ({seed}, {offset}); both are 0 to 2^63 - 1")
        return seed, offset
    if ranks > 1:
        raise InvalidArgument(
            "dropout over several ranks needs dropout_rng=(seed, offset), the same on all ranks, "
            "so that they drop the same pairs"
        )
    return int(torch.randint(2**62, ())), 0
