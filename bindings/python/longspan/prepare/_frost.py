"""The cuDNN frontend's open engines (FROST): the forward for compute capability 9.0."""

import os
import pathlib

from ._builds import Build
from ._objects import export

_TEMPLATE = "sm90/prefill_d512_f16.py"
_TAG = "sdpa_fwd_sm90_d512"
_TILE = 64


def environment() -> dict[str, str]:
    """What the packages read when they are imported."""
    return {"CUTE_DSL_ARCH": "sm_90a", "CUDNN_FRONTEND_DISABLE_COMPILED_CACHE": "1"}


def _strides(heads: int, tokens: int, dim: int) -> tuple[int, int, int, int]:
    """Of batch, head, token and element. Builds fix their order alone."""
    return tokens * heads * dim, dim, heads * dim, 1


def export_build(build: Build, folder: pathlib.Path) -> dict:
    """Writes the build's object into the folder, and returns its part of the manifest."""
    os.environ.update(environment())
    from cudnn.frost.tile_dsl.constants import DTYPE_BF16, DTYPE_FP16
    from cudnn.sdpa.fwd import api_dsl
    from cudnn.sdpa.fwd.config_sm90 import TemplateParams

    order = {}
    if build.mask == "causal":  # longest rows first, as the frontend itself does
        order["sched_policy"] = api_dsl._causal_sched_policy(
            s_kv=build.tokens_k, d_qk=build.dim, d_v=build.dim_v, elem_bytes=2
        )
    parameters = TemplateParams(
        dtype_qkv=DTYPE_BF16 if build.dtype == "bf16" else DTYPE_FP16,
        causal=build.mask == "causal",
        has_lse=True,
        pack_gqa=build.group > 1 and _TILE % build.group == 0,
        qh_per_kh=build.group,
        seq_q_lens_present=build.lengths,
        seq_kv_lens_present=build.lengths,
        **order,
    )
    template = api_dsl._load_kernel_template(_TEMPLATE, parameters, tag=_TAG)
    q = _strides(build.heads_q, build.tokens_q, build.dim)
    k = _strides(build.heads_kv, build.tokens_k, build.dim)
    v = _strides(build.heads_kv, build.tokens_k, build.dim_v)
    o = _strides(build.heads_q, build.tokens_q, build.dim_v)
    statistics = (build.heads_q * build.tokens_q, 1, build.heads_q)
    compiled = template.compile(
        1,
        build.heads_q,
        build.heads_kv,
        build.tokens_q,
        build.tokens_k,
        q,
        k,
        v,
        o,
        statistics,
        target="sm_90a",
        d_qk=build.dim,
        d_v=build.dim_v,
    )
    return {
        "tile_q": 1,
        "tile_k": 1,
        "buffers": [],
        "steps": [{"role": "main", "given": {}}],
        "entries": [export(folder, build.name, "main", "frost.sm90", compiled)],
    }
