"""An object with the call shape of Megatron-Core's core attention."""

import torch

from longspan._errors import InvalidArgument, Unsupported
from longspan.models.transformer_engine import DotProductAttention
from longspan.torch._group import process_group


# Switches of a configuration that change what attention computes or gives, and why not here.
_REFUSED = {
    "fp8_dot_product_attention": "longspan has no 8-bit types",
    "qk_clip": "its largest logits are not handed on",
    "log_max_attention_logit": "its largest logits are not handed on",
}


def _has_window(config, layer_number: int) -> bool:
    """Whether the layer is one of those with config.window_size."""
    skipped = getattr(config, "window_attn_skip_freq", None)
    if getattr(config, "window_size", None) is None:
        return False
    if isinstance(skipped, int):
        return layer_number % skipped != 0
    return True if skipped is None else bool(skipped[layer_number - 1])


def _group(pg_collection, name: str, size: int):
    """A group of the collection; None where it has one rank."""
    group = getattr(pg_collection, name, None)
    if group is not None and group.size() != size:
        raise InvalidArgument(
            f"the config has {size} ranks in the dimension '{name}', and pg_collection.{name} has "
            f"{group.size()}; they must agree"
        )
    if size == 1:
        return None
    if group is None:
        raise InvalidArgument(
            f"the config has {size} ranks in the dimension '{name}', but pg_collection has no "
            f"group of that name; pass pg_collection with {name}"
        )
    return group


def _name(mask_type) -> str:
    """Of an AttnMaskType, or a string."""
    return getattr(mask_type, "name", mask_type)


class CoreAttention(DotProductAttention):
    """Takes the place of Megatron-Core's ``core_attention``: query [sq, b, np, hn], key and value
    [sk, b, ng, hn] to [sq, b, np * hn], or packed [t, np, hn] to [t, np * hn]. See
    `DotProductAttention` for the order of tokens under context parallelism, and its attributes.

    Scores are not divided by the layer's number and multiplied again
    (``apply_query_key_layer_scaling``): they are FP32 here.
    """

    def __init__(
        self,
        config,
        layer_number: int,
        attn_mask_type,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        k_channels: int | None = None,
        v_channels: int | None = None,
        cp_comm_type: str | None = None,
        pg_collection=None,
    ):
        for name, remedy in _REFUSED.items():
            if getattr(config, name, False):
                raise Unsupported(f"{name} of the config is not honoured: {remedy}; set it False")
        dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        super().__init__(
            num_attention_heads=config.num_attention_heads,
            kv_channels=(k_channels or config.kv_channels, v_channels or config.kv_channels),
            num_gqa_groups=config.num_query_groups,
            attention_dropout=dropout,
            attn_mask_type=_name(attn_mask_type),
            window_size=config.window_size if _has_window(config, layer_number) else None,
            tp_group=_group(pg_collection, "tp", config.tensor_model_parallel_size),
            attention_type=attention_type,
            cp_group=_group(pg_collection, "cp", config.context_parallel_size),
            cp_comm_type=cp_comm_type or "p2p",
            softmax_scale=softmax_scale,
            softmax_type=getattr(config, "softmax_type", "vanilla"),
        )
        self.config = config
        self.layer_number = layer_number

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask=None,
        attn_mask_type=None,
        attention_bias=None,
        packed_seq_params=None,
    ):
        """As Megatron-Core's. ``packed_seq_params`` is a PackedSeqParams, or has its fields; its
        lengths are those over all ranks."""
        packed = {} if packed_seq_params is None else self._packed(packed_seq_params)
        return super().forward(
            query, key, value, attention_mask,
            attn_mask_type=None if attn_mask_type is None else _name(attn_mask_type),
            core_attention_bias_type="no_bias" if attention_bias is None else "post_scale_bias",
            core_attention_bias=attention_bias,
            **packed,
        )

    def _packed(self, params) -> dict:
        group = process_group(getattr(params, "cp_group", None))
        if group is not None and group is not self.cp_group:
            raise Unsupported(
                "packed_seq_params has a cp_group of its own (dynamic context parallelism); call "
                "set_context_parallel_group before the step instead"
            )
        ranks = getattr(params, "local_cp_size", None)
        if ranks not in (None, self._ranks()):
            raise Unsupported(
                f"packed_seq_params.local_cp_size is {ranks}, the module's group has "
                f"{self._ranks()} ranks (dynamic context parallelism); call "
                "set_context_parallel_group before the step instead"
            )
        names = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
        lengths = {name: getattr(params, name, None) for name in names}
        return {"qkv_format": getattr(params, "qkv_format", None) or "thd", **lengths}
