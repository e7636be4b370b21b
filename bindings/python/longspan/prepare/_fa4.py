"""FlashAttention-4: what it compiles for a build, and what its kernels need around them."""

import os
import pathlib

from ._builds import Build
from ._objects import export

_HEADS_KV = 2  # any number: heads, lengths, batch and strides stay open
_BATCH = 2
_TOKENS = 1024  # more than one tile both ways: one tile alone compiles another backward


def environment() -> dict[str, str]:
    """What the packages read when they are imported."""
    return {
        "CUTE_DSL_ARCH": "sm_90a",
        "FLASH_ATTENTION_ARCH": "sm_90",
        "FLASH_ATTENTION_NUM_SMS": "132",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "0",
    }


class _Operands:
    """Tensors without memory that stand for those of a call."""

    def __init__(self, torch, build: Build):
        self._torch = torch
        self._dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[build.dtype]
        self._packed = build.layout == "packed"
        heads_q = _HEADS_KV * build.group
        self.q = self._rows(heads_q, build.dim)
        self.k = self._rows(_HEADS_KV, build.dim)
        self.v = self._rows(_HEADS_KV, build.dim_v)
        self.o = self._rows(heads_q, build.dim_v)
        shape = (heads_q, _BATCH * _TOKENS) if self._packed else (_BATCH, heads_q, _TOKENS)
        self.lse = torch.empty(shape, dtype=torch.float32, device="cuda")
        self.keywords = self._mask(build)
        if self._packed:
            ends = torch.empty(_BATCH + 1, dtype=torch.int32, device="cuda")
            self.keywords.update(cu_seqlens_q=ends, cu_seqlens_k=torch.empty_like(ends))
            self.keywords.update(max_seqlen_q=_TOKENS, max_seqlen_k=_TOKENS)

    def _rows(self, heads: int, dim: int):
        rows = (_BATCH * _TOKENS,) if self._packed else (_BATCH, _TOKENS)
        return self._torch.empty(*rows, heads, dim, dtype=self._dtype, device="cuda")

    @staticmethod
    def _mask(build: Build) -> dict:
        width = 128 if build.mask == "window" else None
        return {
            "causal": build.mask == "causal",
            "window_size_left": width,
            "window_size_right": width,
        }


def _emptied(function):
    """Forgets what the function has compiled; the result yields what it compiles from now on."""
    function.compile_cache.cache.clear()
    return lambda: list(function.compile_cache.cache.values())


def _turns(tensor, leading_dim: int, alignment: int, stride_order):
    """What the interface makes of the counters of a deterministic backward, of which it asks memory
    that a tensor without any has not: the last extent is fixed, the others are not."""
    from cutlass.cute.runtime import make_fake_compact_tensor
    from cutlass.cute import sym_int
    import cutlass

    extents = [sym_int() for _ in range(leading_dim)]
    order = tuple(reversed(range(leading_dim + 1)))
    return make_fake_compact_tensor(
        cutlass.Int32,
        (*extents, tensor.shape[leading_dim]),
        stride_order=order,
        assumed_align=alignment,
    )


def _forward_by_rows(interface, torch) -> None:
    """The forward writes statistics as the library keeps them, the heads of a row side by side. The
    interface knows rows of a head alone. No other tensor of a forward is of f32."""
    to_cute_tensor = interface.to_cute_tensor

    def converted(tensor, **keywords):
        if tensor is None or tensor.dtype != torch.float32:
            return to_cute_tensor(tensor, **keywords)
        by_rows = tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
        return to_cute_tensor(by_rows, leading_dim=tensor.ndim - 2, **keywords)

    interface.to_cute_tensor = converted


def _backward_by_rows(interface) -> None:
    """The backward reads them so: the first of its tensors of f32. The others are its own."""
    make_tensors = interface.make_fake_bwd_tensors
    f32 = interface.Float32

    def made(*arguments, **keywords):
        tensors = list(make_tensors(*arguments, **keywords))
        place = next(i for i, t in enumerate(tensors) if t.element_type is f32)
        shape = tensors[place].shape
        tensors[place] = interface.fake_tensor(f32, shape, leading_dim=len(shape) - 2)
        return tensors

    interface.make_fake_bwd_tensors = made


def _forward(interface, operands: _Operands, emit) -> dict:
    compiled = _emptied(interface._flash_attn_fwd)
    interface._flash_attn_fwd(
        operands.q, operands.k, operands.v, return_lse=True, num_splits=1, **operands.keywords
    )
    (kernel,) = compiled()
    emit("main", "fa4.forward", kernel)
    return {"tile_q": 1, "tile_k": 1, "buffers": [], "steps": [{"role": "main", "given": {}}]}


def _compile_backward(interface, build: Build, operands: _Operands, emit) -> list[str]:
    """Returns the roles that turn sums into dq, dk and dv: equal kernels are compiled once."""
    functions = [
        interface._bwd_preprocess,
        interface._flash_attn_bwd,
        interface._bwd_postprocess_convert,
    ]
    pre, main, post = map(_emptied, functions)
    interface.utils.convert_from_dlpack_leading_static = _turns
    interface._flash_attn_bwd(
        operands.q,
        operands.k,
        operands.v,
        operands.o,
        operands.o.new_empty(operands.o.shape),
        operands.lse,
        deterministic=build.deterministic,
        **operands.keywords,
    )
    (pre_kernel,), (main_kernel,), posts = pre(), main(), post()
    emit("pre", "fa4.backward_pre", pre_kernel)
    emit("main", "fa4.backward", main_kernel)
    roles = [f"post{i}" for i in range(len(posts))]
    for role, kernel in zip(roles, posts):
        emit(role, "fa4.backward_post", kernel)
    # In order of first use: dq, then dk, then dv.
    return [roles[min(i, len(roles) - 1)] for i in range(3)]


def _buffer(name: str, of: str, width: int, cleared_by: str, turns: bool = False) -> dict:
    return {
        "name": name,
        "dtype": "int32" if turns else "float32",
        "of": of,
        "per": "tile" if turns else "row",
        "width": width,
        "cleared_by": cleared_by,
    }


def _buffers(build: Build, config) -> list[dict]:
    unit = 64 if config.dKV_swapAB else 32
    dim, dim_v = (-(-d // unit) * unit for d in (build.dim, build.dim_v))
    buffers = [
        _buffer("delta_rows", "q", 1, "entry"),
        _buffer("lse_log2", "q", 1, "entry"),
        _buffer("dq_sum", "q", dim, "entry"),
    ]
    shared = build.group > 1
    if shared:
        buffers.append(_buffer("dk_sum", "k", dim, "caller"))
        buffers.append(_buffer("dv_sum", "k", dim_v, "caller"))
    if build.deterministic:
        buffers.append(_buffer("dq_turns", "q", 1, "caller", turns=True))
    if build.deterministic and shared:
        buffers.append(_buffer("dk_turns", "k", 2, "caller", turns=True))
        buffers.append(_buffer("dv_turns", "k", 2, "caller", turns=True))
    return buffers


def _post(role: str, source: str, result: str, scale: str, build: Build, of: str) -> dict:
    given = {"mdQaccum": source, "mdQ": result, "scale": scale}
    if build.layout == "packed":
        given["mCuSeqlensQ"] = f"cumulative_{of}"
    return {"role": role, "given": given}


def _backward(interface, build: Build, operands: _Operands, emit) -> dict:
    dq, dk, dv = _compile_backward(interface, build, operands, emit)
    config = interface._tile_size_bwd_sm90(
        build.dim, build.dim_v, build.mask == "causal", build.mask == "window"
    )
    shared = build.group > 1
    written = {"mdK": "dk_sum", "mdV": "dv_sum"} if shared else {"mdK": "dk", "mdV": "dv"}
    steps = [
        {"role": "pre", "given": {}},
        {"role": "main", "given": written},
        _post(dq, "dq_sum", "dq", "scale", build, "q"),
    ]
    if shared:
        steps.append(_post(dk, "dk_sum", "dk", "scale", build, "k"))
        steps.append(_post(dv, "dv_sum", "dv", "one", build, "k"))
    return {
        "tile_q": config.m_block_size,
        "tile_k": config.n_block_size,
        "buffers": _buffers(build, config),
        "steps": steps,
    }


def export_build(build: Build, folder: pathlib.Path) -> dict:
    """Writes the build's objects into the folder, and returns its part of the manifest."""
    os.environ.update(environment())
    import torch
    from flash_attn.cute import interface
    from torch._subclasses.fake_tensor import FakeTensorMode

    entries = []

    def emit(role: str, known_list: str, compiled) -> None:
        entries.append(export(folder, build.name, role, known_list, compiled))

    with FakeTensorMode():
        operands = _Operands(torch, build)
        if build.direction == "forward":
            _forward_by_rows(interface, torch)
            parts = _forward(interface, operands, emit)
        else:
            _backward_by_rows(interface)
            parts = _backward(interface, build, operands, emit)
    return {**parts, "entries": entries}
