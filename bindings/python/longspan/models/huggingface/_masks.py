"""What transformers' mask functions say, read instead of evaluated: no dense mask is built."""

import dataclasses

import torch

from longspan._errors import Unsupported


@dataclasses.dataclass(frozen=True)
class Packing:
    """Sequences inside [batch, seq] rows.

    Attributes:
        q_rows, k_rows: the rows (batch-major) that are tokens; None where all are.
        lengths, kv_lengths: tokens of each sequence.
    """

    q_rows: torch.Tensor | None
    k_rows: torch.Tensor | None
    lengths: list[int]
    kv_lengths: list[int]


class _UsedAsTensor(Unsupported, AttributeError):
    """A model takes its mask for a tensor."""

    def __init__(self, use: str):
        super().__init__(
            f"the model computes with its attention mask ('{use}'), which longspan gives it as "
            "terms and not as a tensor; use attn_implementation='eager' for this model"
        )


@dataclasses.dataclass
class Mask:
    """A mask in longspan's terms. ``left`` and ``right`` are keys beside a query's own; -1 is
    unbounded. ``padded`` says that the packing comes from a padding mask."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise _UsedAsTensor(name)

    @classmethod
    def __torch_function__(cls, function, _types, _arguments=(), _keywords=None):
        raise _UsedAsTensor(getattr(function, "__name__", str(function)))

    causal: bool = False
    left: int = -1
    right: int = -1
    chunk: int = 0
    packing: Packing | None = None
    padded: bool = False

    def arguments(self) -> dict:
        """Keyword arguments of `longspan.torch.attention`."""
        window = (self.left, self.right) if max(self.left, self.right) >= 0 else None
        return {"causal": self.causal, "window": window, "chunk": self.chunk}


def _narrowed(current: int, keys: int) -> int:
    return keys if current < 0 else min(current, keys)


class _Reader:
    """Collects the terms of a mask function: a composition of functions of transformers'
    masking_utils, told apart by name. Everything else is refused."""

    def __init__(self):
        self.mask = Mask()
        self.segments: torch.Tensor | None = None

    def read(self, function) -> None:
        name = getattr(function, "__qualname__", repr(function)).split(".")[0]
        known = getattr(function, "__module__", "") == "transformers.masking_utils"
        term = getattr(self, f"_{name}", None) if known else None
        if term is None:
            raise Unsupported(
                f"the model's mask has the term '{name}', which longspan cannot express; it knows "
                "causal, sliding windows, chunks, packed sequences and padding. Use "
                "attn_implementation='sdpa' for this model."
            )
        cells = (cell.cell_contents for cell in function.__closure__ or ())
        term(**dict(zip(function.__code__.co_freevars, cells)))

    def _and_masks(self, mask_functions):
        for function in mask_functions:
            self.read(function)

    def _causal_mask_function(self):
        self.mask.causal = True

    def _bidirectional_mask_function(self):
        pass

    def _sliding_window_overlay(self, sliding_window):
        self.mask.left = _narrowed(self.mask.left, sliding_window - 1)

    def _sliding_window_bidirectional_overlay(self, sliding_window):
        self.mask.left = _narrowed(self.mask.left, sliding_window)
        self.mask.right = _narrowed(self.mask.right, sliding_window)

    def _chunked_overlay(self, chunk_size, left_padding):
        if bool(left_padding.any()):
            raise Unsupported(
                f"chunks of {chunk_size} with left padding; pad on the right or pack sequences"
            )
        self.mask.chunk = chunk_size

    def _remap_positions_for_packed_sequence(self, mask_function, position_ids):
        self.read(mask_function)

    def _packed_sequence_mask_function(self, packed_sequence_mask):
        self.segments = packed_sequence_mask


def _segmented(segments: torch.Tensor) -> Packing:
    """From [batch, seq] numbers that are equal inside a sequence."""
    rows = torch.arange(segments.shape[0], device=segments.device)[:, None]
    numbered = segments + rows * segments.shape[1]
    lengths = torch.unique_consecutive(numbered.flatten(), return_counts=True)[1].tolist()
    return Packing(None, None, lengths, lengths)


def _check_no_holes(valid: torch.Tensor) -> None:
    begins = valid[:, 1:] & ~valid[:, :-1]
    if bool((begins.sum(1) + valid[:, 0] > 1).any()):
        raise Unsupported(
            "attention_mask has zeros between tokens, and the layer has a window: distances would "
            "differ; pad at the ends alone, or pack sequences by position_ids"
        )


def _padding(mask: Mask, valid: torch.Tensor, q_length: int) -> Packing:
    """From [batch, keys] booleans. The queries are those of the last keys, or all where keys are
    not theirs (a mask that is not causal)."""
    if mask.left >= 0 or mask.chunk:
        _check_no_holes(valid)
    queries = valid[:, -q_length:] if mask.causal else valid.new_ones(len(valid), q_length)
    return Packing(
        q_rows=queries.flatten().nonzero().flatten(),
        k_rows=valid.flatten().nonzero().flatten(),
        lengths=queries.sum(1).tolist(),
        kv_lengths=valid.sum(1).tolist(),
    )


def _check_ends_meet(mask: Mask, q_length, kv_length, q_offset, kv_offset) -> None:
    """Queries must be those of the last keys."""
    if isinstance(q_offset, torch.Tensor):
        raise Unsupported(
            "the cache is a static one, whose keys beyond the current length are no tokens; use "
            "cache_implementation='dynamic'"
        )
    if mask.causal and q_offset + q_length != kv_offset + kv_length:
        raise Unsupported(
            f"queries end at position {q_offset + q_length}, keys at {kv_offset + kv_length}; "
            "longspan takes caches whose last key is the last query's (DynamicCache)"
        )
    if mask.chunk and kv_offset:
        raise Unsupported(f"chunks of {mask.chunk} over a cache that begins at key {kv_offset}")


@torch.compiler.disable(reason="reads closures, and lengths from tensors")
def read_mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None,
    attention_mask=None, **_unused,
) -> Mask:
    """transformers' mask interface."""
    reader = _Reader()
    reader.read(mask_function)
    mask = reader.mask
    _check_ends_meet(mask, q_length, kv_length, q_offset, kv_offset)
    if reader.segments is not None:
        mask.packing = _segmented(reader.segments)
    if attention_mask is None:
        return mask
    valid = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
    if valid.shape[1] != kv_length:
        raise Unsupported(
            f"attention_mask covers {valid.shape[1]} of {kv_length} keys; give one that covers all"
        )
    if not bool(valid.all()):
        mask.packing, mask.padded = _padding(mask, valid, q_length), True
    return mask
