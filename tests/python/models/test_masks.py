"""What is read from transformers' mask functions against the dense masks that these give."""

import pytest
import torch
import transformers
from transformers import masking_utils

import longspan
from longspan.models.huggingface import NAME
from longspan.models.huggingface._attention import attention_forward
from oracle import relative_rms

WINDOW, CHUNK = 5, 4


def masks(make, implementation, q_length, cache=None, **changes):
    settings = {"sliding_window": WINDOW, "attention_chunk_size": CHUNK, "num_hidden_layers": 1,
                **changes}
    config = transformers.LlamaConfig(**settings, attn_implementation=implementation)
    embeds = torch.zeros(2, q_length, 8, dtype=torch.float64)
    return make(config=config, inputs_embeds=embeds, attention_mask=None, cache=cache)


def compare(make, q_length, k_length, cache=None, **changes):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 8, generator=generator, dtype=torch.float64)
               for n in (q_length, k_length, k_length))
    dense = masks(make, "eager", q_length, cache, **changes)
    bias = torch.zeros(()) if dense is None else dense
    want = ((q @ k.mT * 8**-0.5 + bias).softmax(-1) @ v).transpose(1, 2)
    mask = masks(make, NAME, q_length, cache, **changes)
    got, probabilities = attention_forward(torch.nn.Module(), q, k, v, mask, scaling=8**-0.5)
    assert probabilities is None
    assert relative_rms(got, want) <= 1e-12


@pytest.mark.parametrize(
    "make",
    [masking_utils.create_causal_mask, masking_utils.create_sliding_window_causal_mask,
     masking_utils.create_chunked_causal_mask, masking_utils.create_bidirectional_mask,
     masking_utils.create_bidirectional_sliding_window_mask],
)
def test_masks_of_equal_lengths(make):
    compare(make, 13, 13)


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("seen", [2, 9])
def test_masks_with_a_cache(sliding, seen):
    kind = "sliding_attention" if sliding else "full_attention"
    config = transformers.LlamaConfig(
        num_hidden_layers=1, sliding_window=WINDOW, layer_types=[kind]
    )
    cache = transformers.DynamicCache(config=config)
    cache.update(torch.zeros(2, 1, seen, 8), torch.zeros(2, 1, seen, 8), 0)
    make = masking_utils.create_sliding_window_causal_mask if sliding \
        else masking_utils.create_causal_mask
    keys = min(seen, WINDOW - 1) + 3 if sliding else seen + 3
    compare(make, 3, keys, cache)


def test_own_terms_are_refused_by_name():
    def odd(batch, head, q, k):
        return k % 2 == 1

    for word in ("and_mask_function", "or_mask_function"):
        make = lambda **given: masking_utils.create_causal_mask(**given, **{word: odd})
        with pytest.raises(longspan.Unsupported, match="test_own_terms|or_masks"):
            masks(make, NAME, 6)
