"""Sequences as TransformerEngine names them: formats, cumulative lengths, padding."""

from longspan._errors import InvalidArgument, Unsupported
from longspan._problem import lengths_from_cumulative


def _check_chunks(extents: list[int], ranks: int, what: str) -> None:
    """TransformerEngine's order cuts each sequence into 2 P equal chunks."""
    for extent in extents if ranks > 1 else ():
        if extent % (2 * ranks):
            raise InvalidArgument(
                f"{what} of {extent} tokens over {ranks} ranks: each sequence is cut into "
                f"{2 * ranks} equal chunks here; pad it to a multiple of that, or call "
                "longspan.torch.attention, where nothing has to divide"
            )


def _packed_side(rows: int, lengths, padded, ranks: int, name: str) -> tuple[list[int], list[int]]:
    """Lengths and extents of packed sequences, checked against this rank's rows."""
    lengths = lengths_from_cumulative(lengths, f"cu_seqlens_{name}")
    if lengths is None:
        raise InvalidArgument(f"qkv_format 'thd' needs cu_seqlens_{name}")
    extents = lengths_from_cumulative(padded, f"cu_seqlens_{name}_padded") or lengths
    if sum(extents) != rows * ranks:
        raise InvalidArgument(
            f"cumulative lengths of {name} end at {sum(extents)}, but {ranks} ranks with {rows} "
            f"rows each hold {rows * ranks}; lengths are those over all ranks, and the last extent "
            "reaches to the end"
        )
    _check_chunks(extents, ranks, f"a sequence of {name}")
    return lengths, extents


def _packed(q, k, cumulative, ranks: int) -> dict:
    cu_q, cu_kv, padded_q, padded_kv = cumulative
    if cu_kv is None:
        cu_kv, padded_kv = cu_q, padded_q if padded_kv is None else padded_kv
    lengths, extents = _packed_side(q.shape[0], cu_q, padded_q, ranks, "q")
    kv_lengths, kv_extents = _packed_side(k.shape[0], cu_kv, padded_kv, ranks, "kv")
    return {"lengths": lengths, "kv_lengths": kv_lengths, "padded": extents,
            "kv_padded": kv_extents, "layout": "thd"}


def _check_unread(layout: str, padding: bool, cumulative) -> None:
    """Cumulative lengths that neither the format nor the mask type asks for."""
    names = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
    for name, given in zip(names, cumulative):
        if given is None or (padding and not name.endswith("padded")):
            continue
        remedy = "qkv_format 'thd'" if padding else "an attn_mask_type with padding, or 'thd'"
        raise InvalidArgument(
            f"{name} is given with qkv_format '{layout}' and a mask type that does not read it; "
            f"say {remedy}, or leave it out"
        )


def _batched(q, k, layout: str, padding: bool, cumulative, ranks: int) -> dict:
    _check_unread(layout, padding, cumulative)
    batch_dim, seq_dim = (0, 1) if layout == "bshd" else (1, 0)
    extents = [q.shape[seq_dim] * ranks] * q.shape[batch_dim]
    kv_extents = [k.shape[seq_dim] * ranks] * k.shape[batch_dim]
    _check_chunks(extents[:1], ranks, "a query sequence")
    _check_chunks(kv_extents[:1], ranks, "a key sequence")
    lengths, kv_lengths = extents, kv_extents
    if padding:
        lengths = lengths_from_cumulative(cumulative[0], "cu_seqlens_q")
        if lengths is None:
            raise InvalidArgument("attn_mask_type says padding: give cu_seqlens_q")
        kv_lengths = lengths_from_cumulative(cumulative[1], "cu_seqlens_kv") or lengths
    return {"lengths": lengths, "kv_lengths": kv_lengths, "padded": extents,
            "kv_padded": kv_extents, "layout": "bshd"}


def sequence_keys(q, k, layout: str, word: str, attention_mask, cumulative, ranks: int) -> dict:
    """The keys lengths, kv_lengths, padded, kv_padded and layout of a problem.

    Args:
        word: the mask type; where it says padding, lengths come from ``cumulative``.
        cumulative: cu_seqlens_q, cu_seqlens_kv and both with padding, over all ranks.
    """
    padding = "padding" in word
    if padding and attention_mask is not None:
        raise Unsupported(
            "attention_mask with a padding mask type: give its lengths as cu_seqlens_q and "
            "cu_seqlens_kv"
        )
    if layout == "thd":
        return _packed(q, k, cumulative, ranks)
    return _batched(q, k, layout, padding, cumulative, ranks)
