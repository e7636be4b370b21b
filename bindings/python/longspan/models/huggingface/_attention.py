"""The attention function that transformers' models call."""

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from longspan._errors import InvalidArgument, Unsupported
from longspan.models.huggingface._masks import Mask, Packing, read_mask
from longspan.torch import attention

NAME = "longspan"
ATTRIBUTE = "longspan_parallel"  # of a model's modules: what `use` returned

# Arguments of some models that change scores or results in ways that longspan does not compute.
_REFUSED = (
    "output_attentions", "position_bias", "head_mask", "layer_head_mask", "sinks", "indices",
    "topk_indices", "block_indices",
)


def _refuse_arguments(arguments: dict) -> None:
    for name in _REFUSED:
        value = arguments.get(name)
        if value is not None and value is not False:
            raise Unsupported(
                f"the model passes {name} to its attention, which longspan does not honour; use "
                "attn_implementation='eager' for this model"
            )


def _mask_of(module, given, is_causal, sliding_window) -> Mask:
    if isinstance(given, Mask):
        return given
    if given is not None:
        raise Unsupported(
            f"attention_mask is a dense mask of shape {tuple(given.shape)}, which longspan does "
            "not take; give a [batch, seq] mask of padding, or position_ids of packed sequences"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    left = -1 if sliding_window is None else sliding_window - 1
    return Mask(causal=causal, left=left, right=-1 if causal else left)


def _packed_rows(tensor: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """[batch, heads, seq, dim] to [tokens, heads, dim]"""
    packed = tensor.transpose(1, 2).flatten(0, 1)
    return packed if rows is None else packed.index_select(0, rows)


def _packed(query, key, value, packing: Packing, **arguments) -> torch.Tensor:
    """[batch, seq, heads, dim]; rows that are no tokens are zero."""
    q = _packed_rows(query, packing.q_rows)
    k, v = _packed_rows(key, packing.k_rows), _packed_rows(value, packing.k_rows)
    o = attention(
        q, k, v, layout="thd", lengths=packing.lengths, kv_lengths=packing.kv_lengths,
        align="bottom_right", **arguments,
    )
    batch, _, seq, _ = query.shape
    if packing.q_rows is not None:
        o = o.new_zeros(batch * seq, *o.shape[1:]).index_copy(0, packing.q_rows, o)
    return o.unflatten(0, (batch, seq))


def _from_cumulative(query, cu_seq_lens_q, cu_seq_lens_k) -> Packing:
    if query.shape[0] != 1:
        raise InvalidArgument(
            f"cu_seq_lens_q is given with a batch of {query.shape[0]}; packed rows have batch 1"
        )
    lengths, kv_lengths = cu_seq_lens_q.diff().tolist(), cu_seq_lens_k.diff().tolist()
    return Packing(None, None, lengths, kv_lengths)


def _alone(query, key, value, mask: Mask, cumulative, **arguments) -> torch.Tensor:
    packing = mask.packing
    if cumulative[0] is not None and not mask.padded:
        packing = _from_cumulative(query, *cumulative)
    if packing is None:
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        return attention(q, k, v, align="bottom_right", **mask.arguments(), **arguments)
    if mask.chunk:
        raise Unsupported(f"chunks of {mask.chunk} over packed or padded sequences")
    return _packed(query, key, value, packing, **mask.arguments(), **arguments)


def _over_ranks(parallel, module, query, key, value, mask, cumulative, **arguments):
    if mask.padded:
        raise Unsupported(
            "a padding mask over a group: give `Parallel.shard` the sequences' lengths instead"
        )
    if cumulative[0] is None:
        raise InvalidArgument(
            "the model runs over a group, but its inputs are not from `Parallel.shard`: they lack "
            "cu_seq_lens_q"
        )
    if arguments["dropout"]:
        arguments["dropout_rng"] = parallel.dropout_rng(module)
    q, k, v = (_packed_rows(tensor, None) for tensor in (query, key, value))
    o = attention(
        q, k, v, layout="thd", cu_seqlens=cumulative[0], group=parallel.group, **mask.arguments(),
        **arguments,
    )
    return o[None]


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None,
    softcap=None, is_causal=None, s_aux=None, cu_seq_lens_q=None, cu_seq_lens_k=None, **others,
):
    """transformers' attention interface: [batch, heads, seq, dim] to [batch, seq, heads, dim], and
    None in the place of probabilities."""
    _refuse_arguments(others)
    mask = _mask_of(module, attention_mask, is_causal, sliding_window)
    cumulative = (cu_seq_lens_q, cu_seq_lens_k)
    arguments = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux, "dropout": dropout}
    parallel = getattr(module, ATTRIBUTE, None)
    if parallel is not None:
        arguments["options"] = parallel.options
    if parallel is None or parallel.group is None:
        return _alone(query, key, value, mask, cumulative, **arguments), None
    return _over_ranks(parallel, module, query, key, value, mask, cumulative, **arguments), None


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, read_mask)
