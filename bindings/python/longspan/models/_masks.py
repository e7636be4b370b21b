"""Mask words of TransformerEngine and Megatron-Core in longspan's terms."""

from longspan._errors import InvalidArgument, Unsupported

# (causal, bottom right; None where the word leaves it open)
_TYPES = {
    "no_mask": (False, None),
    "padding": (False, None),
    "causal": (True, False),
    "padding_causal": (True, False),
    "causal_bottom_right": (True, True),
    "padding_causal_bottom_right": (True, True),
}
_SYNONYMS = {"padding,causal": "padding_causal", "causal,padding": "padding_causal"}


def mask_type(word: str) -> str:
    """One of the words above."""
    word = _SYNONYMS.get(word, word)
    if word in _TYPES:
        return word
    if word == "arbitrary":
        raise Unsupported(
            "attn_mask_type 'arbitrary' is a dense mask, which longspan does not take; say it by "
            "causal, window_size, cu_seqlens or an additive bias"
        )
    raise InvalidArgument(f"attn_mask_type is '{word}'; it must be one of {', '.join(_TYPES)}")


def _window(causal: bool, window: tuple[int, int] | None, word: str) -> tuple[int, int] | None:
    if window is None:
        return None
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidArgument(f"window_size is {window!r}; it must be (left, right)") from None
    if (left, right) == (-1, -1):
        return None
    if causal and right not in (0, -1):
        raise InvalidArgument(
            f"window_size ({left}, {right}) shows later keys, which attn_mask_type '{word}' hides; "
            f"give ({left}, 0), or no_mask"
        )
    if not causal and (left, right) == (-1, 0):
        raise InvalidArgument(
            f"window_size (-1, 0) is a causal mask, but attn_mask_type is '{word}'; give 'causal' "
            "or (-1, -1)"
        )
    return left, right


def mask_arguments(
    word: str, window: tuple[int, int] | None = None, bottom_right: bool | None = None
) -> dict:
    """causal, align and window of a problem. Where the word does not say it, the diagonal starts at
    the bottom right, as in TransformerEngine."""
    causal, named = _TYPES[mask_type(word)]
    if named is None:
        named = True if bottom_right is None else bottom_right
    return {
        "causal": causal,
        "align": "bottom_right" if named else "top_left",
        "window": _window(causal, window, word),
    }
