"""From attention()'s arguments to a problem text and values."""

import math
from collections.abc import Sequence

import torch

from longspan._errors import InvalidArgument
from longspan._problem import integers, lengths_from_cumulative, number, problem_text
from longspan.torch._plan import DTYPES, Plan


def _check_kind(name: str, tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
    if hasattr(tensor, "to_local"):
        raise InvalidArgument(
            f"{name} is a DTensor; give this rank's rows, {name}.to_local(), with group= or plan="
        )
    if tensor.layout != torch.strided:
        raise InvalidArgument(
            f"{name} has the layout {tensor.layout}; it must be torch.strided: packed sequences "
            "are layout='thd' with cu_seqlens"
        )


def check_tensors(layout: str, plan, *tensors: torch.Tensor) -> None:
    if plan is not None and not isinstance(plan, Plan):
        raise InvalidArgument(f"plan is a {type(plan).__name__}; it must be a longspan.torch.Plan")
    packed = layout == "thd" or (layout == "bshd" and plan is not None and plan.packed)
    extents = 3 if packed else 4
    for name, tensor in zip("qkv", tensors):
        _check_kind(name, tensor)
        if tensor.dim() != extents:
            raise InvalidArgument(
                f"{name} has {tensor.dim()} extents; layout '{layout}' takes {extents}"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise InvalidArgument(f"{name} lies on {tensor.device}; cpu and cuda are computed on")


def check_sides(q: torch.Tensor, **sides) -> None:
    """Tensors beside q, k and v lie where these lie. Switches and words are none."""
    for name, tensor in sides.items():
        if tensor is None or isinstance(tensor, bool | str):
            continue
        _check_kind(name, tensor)
        if tensor.device != q.device:
            raise InvalidArgument(
                f"{name} lies on {tensor.device} and q on {q.device}; move it: {name}.to(q.device)"
            )


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


def autocast(*tensors: torch.Tensor | None):
    """The tensors in autocast's type where it is on; float64 stays."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or tensors[0].dtype == torch.float64:
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(None if tensor is None else tensor.to(dtype) for tensor in tensors)


def _host_lengths(lengths, cumulative, names: tuple[str, str]) -> Sequence[int] | None:
    if lengths is not None and cumulative is not None:
        raise InvalidArgument(f"{names[0]} and {names[1]} say the same: give one of them")
    given, name = (cumulative, names[1]) if lengths is None else (lengths, names[0])
    if isinstance(given, torch.Tensor) and torch._C._functorch.is_batchedtensor(given):
        raise InvalidArgument(f"vmap over {name}; give what all calls share")
    return lengths_from_cumulative(given, name) if lengths is None else integers(given, name)


def _extents(tensor: torch.Tensor, ranks: int) -> list[int]:
    """Whole extents of equal shards."""
    return [tensor.shape[1] * ranks] * tensor.shape[0]


def lengths_keys(q, k, lengths, kv_lengths, cu_seqlens, cu_seqlens_kv, packed: bool, ranks: int):
    """The keys lengths, kv_lengths, padded, kv_padded and layout of the problem."""
    lengths = _host_lengths(lengths, cu_seqlens, ("lengths", "cu_seqlens"))
    kv_lengths = _host_lengths(kv_lengths, cu_seqlens_kv, ("kv_lengths", "cu_seqlens_kv"))
    if packed:
        if lengths is None:
            raise InvalidArgument("packed tensors (layout='thd') need cu_seqlens or lengths")
        return {"lengths": lengths, "kv_lengths": kv_lengths, "layout": "thd"}
    extents, kv_extents = _extents(q, ranks), _extents(k, ranks)
    if not extents:
        raise InvalidArgument("q has a batch of 0; attention takes at least one sequence, which "
                              "may have length 0: leave the call out")
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


def with_alibi(alibi) -> bool:
    """Whether there are slopes; refuses what is neither a switch nor slopes."""
    if isinstance(alibi, torch.Tensor):
        if alibi.requires_grad and torch.is_grad_enabled():
            raise InvalidArgument(
                "alibi requires a gradient, and slopes get none; give alibi.detach()"
            )
        return True
    if alibi is None or alibi is True or alibi is False:
        return bool(alibi)
    raise InvalidArgument(f"alibi is {alibi!r}; it must be True, False or a tensor [heads]")


def factor(scale) -> float | None:
    """The factor on q k^T as a number; None of None."""
    if scale is None:
        return None
    if isinstance(scale, torch.Tensor) and scale.requires_grad and torch.is_grad_enabled():
        raise InvalidArgument(
            "scale requires a gradient, and it gets none; multiply q by it and give scale=1.0"
        )
    value = number(scale, "scale")
    if not math.isfinite(value):
        raise InvalidArgument(f"scale is {value}; it must be a finite number")
    return value


def per_head(values, q: torch.Tensor) -> torch.Tensor | None:
    """Values per head in the type that the library takes; None where it has them itself."""
    if not isinstance(values, torch.Tensor):
        return None
    return values.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def bias_rows(bias: torch.Tensor | None) -> torch.Tensor | None:
    """[batch, seq_q, heads, seq_k] as the library takes it; None of None."""
    if bias is None:
        return None
    bias = bias.resolve_neg()
    if bias.stride(-1) != 1 or bias.stride(1) < bias.shape[-1]:
        bias = bias.contiguous()
    return bias.transpose(1, 2)


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
        # Graphs take other words every step: there they are no constants.
        compiling = torch.compiler.is_compiling()
        words = list(given) if compiling else integers(given, "dropout_rng")
        if len(words) != 2 or not all(0 <= word < 2**63 for word in words):
            raise InvalidArgument(
                f"dropout_rng is {given!r}; it must be (seed, offset), both 0 to 2^63 - 1"
            )
        return words[0], words[1]
    if ranks > 1:
        raise InvalidArgument(
            "dropout over several ranks needs dropout_rng=(seed, offset), the same on all ranks, "
            "so that they drop the same pairs"
        )
    drawn = torch.randint(2**62, (), device="cpu")
    if torch._C._functorch.is_batchedtensor(drawn):
        raise InvalidArgument(
            "dropout under vmap draws one seed for all calls: say randomness='same', or give "
            "dropout_rng=(seed, offset)"
        )
    return int(drawn), 0
