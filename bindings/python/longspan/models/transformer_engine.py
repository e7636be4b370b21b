"""An object with the call shape of TransformerEngine's DotProductAttention."""

import dataclasses

import torch
from torch.utils.checkpoint import checkpoint

from longspan._errors import InvalidArgument, Unsupported
from longspan._options import Options
from longspan._problem import bias_key
from longspan.models._lengths import sequence_keys
from longspan.models._masks import mask_arguments, mask_type
from longspan.torch import _arguments, attention, engine_of
from longspan.torch._group import process_group

_STRATEGIES = {
    "p2p": "ring",
    "all_gather": "all_gather",
    "a2a": "all_to_all",
    "a2a+p2p": "hybrid",
}
_SINKS = {"vanilla": None, "off-by-one": "off_by_one", "learnable": "learnable"}

# Forward arguments that must stay at these values, and what to do instead.
_REFUSED = {
    "inference_params": (None, "pass cached keys and values with causal_bottom_right"),
    "fp8_output": (False, "the output has the type of the query"),
    "score_mod": (None, "use core_attention_bias, alibi or sinks"),
    "score_mod_bprop": (None, "use core_attention_bias, alibi or sinks"),
    "score_mod_tensors": (None, "use core_attention_bias, alibi or sinks"),
    "score_mod_bprop_tensors": (None, "use core_attention_bias, alibi or sinks"),
}


def _refuse(**given) -> None:
    for name, value in given.items():
        allowed, remedy = _REFUSED[name]
        if value is not None and value is not allowed:
            raise Unsupported(f"{name} is given, which longspan does not honour; {remedy}")


def _one_of(name: str, value, choices) -> None:
    if value not in tuple(choices):
        raise InvalidArgument(f"{name} is '{value}'; it must be one of {', '.join(choices)}")


def _none_beside(fused: str, **parts) -> None:
    for name, value in parts.items():
        if value is not None:
            raise InvalidArgument(f"{name} is given beside {fused}, which holds it; give one")


def _per_rank(name: str, heads: int, ranks: int) -> int:
    if heads % ranks:
        raise InvalidArgument(
            f"{name} is {heads} over {ranks} tensor parallel ranks; it must be a multiple of them"
        )
    return heads // ranks


def _unpacked(qkv, kv, query, key, value, dim: int):
    """query, key and value, from fused tensors where these are given."""
    given = {"kv_layer": kv, "key_layer": key, "value_layer": value}
    if qkv is not None:
        _none_beside("qkv_layer", query_layer=query, **given)
        return qkv.unbind(dim)
    if kv is not None:
        _none_beside("kv_layer", key_layer=key, value_layer=value)
        return query, *kv.unbind(dim)
    return query, key, value


class DotProductAttention(torch.nn.Module):
    """Takes the arguments of ``transformer_engine.pytorch.DotProductAttention`` and gives what it
    gives: [seq, batch, heads * dim], [batch, seq, heads * dim] or [tokens, heads * dim].

    Under a context parallel group each rank holds chunks r and 2P - 1 - r of the 2P chunks of every
    sequence, TransformerEngine's order (longspan's zigzag partition); cumulative lengths are those
    over all ranks. ``cp_stream``, ``fast_zero_fill``, ``num_splits``, ``bf16_backward`` and the
    maximum lengths choose how TransformerEngine runs, not what it computes: they have no effect.
    What cannot be honoured is refused by name (`longspan.Unsupported`).

    Attributes:
        options: of longspan's engine; strategies and partition are set by ``cp_comm_type``.
        dropout_rng: (seed, offset) of the dropout mask, the same on all ranks of the group; set it
            before every step. Needed for dropout under a group or tensor parallelism.
    """

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        bottom_right_diagonal: bool | None = None,
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker=None,
        tp_group=None,
        layer_number: int | None = None,
        attention_type: str = "self",
        cp_group=None,
        cp_global_ranks: list[int] | None = None,
        cp_stream=None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
        softmax_type: str = "vanilla",
        return_max_logit: bool | None = False,
        name: str | None = None,
    ):
        super().__init__()
        _one_of("qkv_format", qkv_format, ("sbhd", "bshd", "thd"))
        _one_of("attention_type", attention_type, ("self", "cross"))
        _one_of("softmax_type", softmax_type, _SINKS)
        self.tp_size = tp_size if tp_group is None else tp_group.size()
        self.heads = _per_rank("num_attention_heads", num_attention_heads, self.tp_size)
        self.kv_heads = _per_rank(
            "num_gqa_groups", num_gqa_groups or num_attention_heads, self.tp_size
        )
        self.attention_dropout = attention_dropout
        self.qkv_format = qkv_format
        self.attn_mask_type = mask_type(attn_mask_type)
        self.window_size = window_size
        self.bottom_right_diagonal = bottom_right_diagonal
        self.dims = (kv_channels,) * 2 if isinstance(kv_channels, int) else tuple(kv_channels)
        self.softmax_scale = self.dims[0]**-0.5 if softmax_scale is None else softmax_scale
        self.softmax_type = softmax_type
        self.return_max_logit = bool(return_max_logit)
        self.options = Options()
        self.dropout_rng: tuple[int, int] | None = None
        sinks = torch.zeros(self.heads) if softmax_type == "learnable" else None
        self.softmax_offset = None if sinks is None else torch.nn.Parameter(sinks)
        self.set_context_parallel_group(cp_group, cp_global_ranks, cp_stream, cp_comm_type)

    def set_context_parallel_group(
        self, cp_group, cp_global_ranks=None, cp_stream=None, cp_comm_type="p2p"
    ) -> None:
        """Splits sequences over ``cp_group`` from now on; None computes alone. p2p is longspan's
        strategy ring, a2a all_to_all, a2a+p2p hybrid; cp_global_ranks and cp_stream are not needed.
        """
        _one_of("cp_comm_type", cp_comm_type, _STRATEGIES)
        if isinstance(cp_group, (list, tuple)):
            raise Unsupported(
                f"cp_group is a list of {len(cp_group)} groups; give the one group of all "
                "context parallel ranks: 'a2a+p2p' finds its nodes itself"
            )
        self.cp_group = process_group(cp_group)
        self.cp_comm_type = cp_comm_type

    def forward(
        self,
        query_layer=None,
        key_layer=None,
        value_layer=None,
        attention_mask=None,
        qkv_format: str | None = None,
        cu_seqlens_q=None,
        cu_seqlens_kv=None,
        cu_seqlens_q_padded=None,
        cu_seqlens_kv_padded=None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
        attn_mask_type: str | None = None,
        window_size: tuple[int, int] | None = None,
        bottom_right_diagonal: bool | None = None,
        checkpoint_core_attention: bool = False,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias=None,
        alibi_slopes=None,
        fast_zero_fill: bool = True,
        inference_params=None,
        pad_between_seqs: bool | None = None,
        fp8_output: bool | None = False,
        bf16_backward: bool | None = False,
        num_splits: int | None = 1,
        score_mod=None,
        score_mod_bprop=None,
        score_mod_tensors=None,
        score_mod_bprop_tensors=None,
        qkv_layer=None,
        kv_layer=None,
        qkv_interleave_dim: int = -3,
    ):
        """See TransformerEngine's documentation; also returns max_logit [heads] when asked for."""
        _refuse(
            inference_params=inference_params, fp8_output=fp8_output, score_mod=score_mod,
            score_mod_bprop=score_mod_bprop, score_mod_tensors=score_mod_tensors,
            score_mod_bprop_tensors=score_mod_bprop_tensors,
        )
        q, k, v = _unpacked(
            qkv_layer, kv_layer, query_layer, key_layer, value_layer, qkv_interleave_dim
        )
        layout = qkv_format or self.qkv_format
        _arguments.check_tensors(layout, None, q, k, v)
        self._check_heads(q, k, v)
        q, k, v = _arguments.autocast(q, k, v)
        word = mask_type(attn_mask_type or self.attn_mask_type)
        if bottom_right_diagonal is None:
            bottom_right_diagonal = self.bottom_right_diagonal
        mask = mask_arguments(word, window_size or self.window_size, bottom_right_diagonal)
        cumulative = (cu_seqlens_q, cu_seqlens_kv, cu_seqlens_q_padded, cu_seqlens_kv_padded)
        lengths = sequence_keys(q, k, layout, word, attention_mask, cumulative, self._ranks())
        scores = self._scores(mask, core_attention_bias_type, core_attention_bias, alibi_slopes)
        plan = self._plan(q, k, v, lengths, mask, scores)

        def attend(q, k, v):
            return attention(
                q, k, v, plan=plan, layout=layout, scale=self.softmax_scale, **scores,
                dropout_rng=self._dropout_rng(plan), return_max_logit=self.return_max_logit,
            )

        out = checkpoint(attend, q, k, v, use_reentrant=False) if checkpoint_core_attention \
            else attend(q, k, v)
        if self.return_max_logit:
            return out[0].flatten(-2), out[1]
        return out.flatten(-2)

    def _ranks(self) -> int:
        return 1 if self.cp_group is None else self.cp_group.size()

    def _check_heads(self, q, k, v) -> None:
        given = (q.shape[-2], k.shape[-2])
        if given != (self.heads, self.kv_heads):
            raise InvalidArgument(
                f"query and key have {given[0]} and {given[1]} heads; made for num_attention_heads "
                f"and num_gqa_groups they must have {self.heads} and {self.kv_heads}"
            )
        dims = (k.shape[-1], v.shape[-1])
        if dims != self.dims:
            raise InvalidArgument(
                f"key and value have dims {dims[0]} and {dims[1]}; made for kv_channels they must "
                f"have {self.dims[0]} and {self.dims[1]}"
            )

    def _scores(self, mask: dict, bias_type: str, bias, slopes) -> dict:
        """sinks, bias and alibi of `attention`."""
        _one_of("core_attention_bias_type", bias_type,
                ("no_bias", "pre_scale_bias", "post_scale_bias", "alibi"))
        if bias_type == "pre_scale_bias":
            raise Unsupported(
                "core_attention_bias_type 'pre_scale_bias': multiply the bias by softmax_scale and "
                "say 'post_scale_bias'"
            )
        if bias_type == "post_scale_bias" and bias is None:
            raise InvalidArgument("'post_scale_bias' without core_attention_bias")
        if bias_type != "post_scale_bias" and bias is not None:
            raise InvalidArgument(
                f"core_attention_bias is given, but core_attention_bias_type is '{bias_type}'; say "
                "'post_scale_bias'"
            )
        if slopes is not None and bias_type != "alibi":
            raise InvalidArgument(
                f"alibi_slopes are given, but core_attention_bias_type is '{bias_type}'; say "
                "'alibi'"
            )
        if bias is not None and self.cp_group is not None:
            raise Unsupported(
                "a bias under a context parallel group: call longspan.torch.attention, which takes "
                "the whole problem's bias on every rank"
            )
        alibi = bias_type == "alibi"
        if alibi and not mask["causal"]:
            raise Unsupported("alibi without a causal mask; say attn_mask_type 'causal'")
        if alibi and slopes is not None and slopes.dim() != 1:
            raise Unsupported(
                f"alibi_slopes of shape {tuple(slopes.shape)}; longspan takes [heads]"
            )
        sinks = self.softmax_offset if self.softmax_type == "learnable" \
            else _SINKS[self.softmax_type]
        return {"sinks": sinks, "bias": bias,
                "alibi": slopes if alibi and slopes is not None else alibi}

    def _dropout_rng(self, plan):
        if plan.dropout and self.dropout_rng is None and self.tp_size > 1:
            raise InvalidArgument(
                f"dropout over {self.tp_size} tensor parallel ranks needs dropout_rng: set it to "
                "(seed, offset), another one on each of them"
            )
        return self.dropout_rng if plan.dropout else None

    def _plan(self, q, k, v, lengths: dict, mask: dict, scores: dict):
        strategy = _STRATEGIES[self.cp_comm_type] if self._ranks() > 1 else "auto"
        options = dataclasses.replace(
            self.options, forward=strategy, backward=strategy, partition="zigzag"
        )
        text = _arguments.problem_of(
            q, k, v, lengths, **mask, alibi=scores["alibi"] is not False,
            bias=bias_key(scores["bias"]), sink=_arguments.sink_key(scores["sinks"]),
            dropout=self.attention_dropout if self.training else 0.0,
            max_logit=self.return_max_logit,
        )
        return engine_of(self.cp_group, q.device, options).plan(text)
