"""The call shape of TransformerEngine's DotProductAttention, on one rank."""

import inspect

import pytest
import torch

import longspan
from longspan.models.transformer_engine import DotProductAttention
from oracle import BARS, Terms, batch_attention, gradients, relative_rms, sequence_attention

# Arguments and defaults in TransformerEngine's documentation (2.20 in development); "-" has none.
CONSTRUCTOR = {
    "num_attention_heads": "-", "kv_channels": "-", "num_gqa_groups": None,
    "attention_dropout": 0.0, "qkv_format": "sbhd", "attn_mask_type": "causal",
    "window_size": None, "bottom_right_diagonal": None, "sequence_parallel": False, "tp_size": 1,
    "get_rng_state_tracker": None, "tp_group": None, "layer_number": None,
    "attention_type": "self", "cp_group": None, "cp_global_ranks": None, "cp_stream": None,
    "cp_comm_type": "p2p", "softmax_scale": None, "softmax_type": "vanilla",
    "return_max_logit": False, "name": None,
}
FORWARD = {
    "query_layer": None, "key_layer": None, "value_layer": None, "attention_mask": None,
    "qkv_format": None, "cu_seqlens_q": None, "cu_seqlens_kv": None, "cu_seqlens_q_padded": None,
    "cu_seqlens_kv_padded": None, "max_seqlen_q": None, "max_seqlen_kv": None,
    "attn_mask_type": None, "window_size": None, "bottom_right_diagonal": None,
    "checkpoint_core_attention": False, "core_attention_bias_type": "no_bias",
    "core_attention_bias": None, "alibi_slopes": None, "fast_zero_fill": True,
    "inference_params": None, "pad_between_seqs": None, "fp8_output": False,
    "bf16_backward": False, "num_splits": 1, "score_mod": None, "score_mod_bprop": None,
    "score_mod_tensors": None, "score_mod_bprop_tensors": None, "qkv_layer": None,
    "kv_layer": None, "qkv_interleave_dim": -3,
}
SET_GROUP = ["cp_group", "cp_global_ranks", "cp_stream", "cp_comm_type"]


def parameters(function) -> dict:
    given = inspect.signature(function).parameters.values()
    return {p.name: "-" if p.default is p.empty else p.default for p in given if p.name != "self"}


def test_signatures():
    assert parameters(DotProductAttention.__init__) == CONSTRUCTOR
    assert parameters(DotProductAttention.forward) == FORWARD
    assert list(parameters(DotProductAttention.set_context_parallel_group)) == SET_GROUP


def tensors(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return [t.requires_grad_() for t in made]


def qkv(sq=12, sk=12, batch=2, dtype=torch.float32):
    """[batch, seq, heads, dim]"""
    return tensors((batch, sq, 4, 8), (batch, sk, 2, 8), (batch, sk, 2, 8), dtype=dtype)


def check(out, want, inputs):
    """`out` with flat heads against [batch, seq, heads, dim], with gradients."""
    want = want.flatten(-2)
    bar = BARS[out.dtype]
    assert out.shape == want.shape
    assert relative_rms(out, want) <= bar
    dout = torch.randn(want.shape, generator=torch.Generator().manual_seed(1))
    for mine, other in zip(gradients(out, dout, inputs), gradients(want, dout, inputs)):
        assert relative_rms(mine, other) <= bar


def made(**arguments):
    return DotProductAttention(4, 8, num_gqa_groups=2, qkv_format="bshd", **arguments)


@pytest.mark.parametrize("layout", ["bshd", "sbhd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_causal(layout, dtype):
    inputs = qkv(dtype=dtype)
    want = batch_attention(*inputs, Terms(causal=True))[0]
    given = [t.transpose(0, 1) if layout == "sbhd" else t for t in inputs]
    out = made()(*given, qkv_format=layout)
    check(out.transpose(0, 1) if layout == "sbhd" else out, want, inputs)


@pytest.mark.parametrize(
    "word, window, diagonal, terms",
    [
        ("no_mask", None, None, Terms()),
        ("no_mask", (3, 2), None, Terms(window=(3, 2), bottom_right=True)),
        ("no_mask", (3, 2), False, Terms(window=(3, 2))),
        ("causal", None, None, Terms(causal=True)),
        ("causal", (4, 0), True, Terms(causal=True, window=(4, 0))),
        ("causal_bottom_right", None, None, Terms(causal=True, bottom_right=True)),
        ("causal_bottom_right", (4, 0), False,
         Terms(causal=True, window=(4, 0), bottom_right=True)),
    ],
)
def test_mask_words_with_unequal_lengths(word, window, diagonal, terms):
    inputs = qkv(sq=9, sk=14)
    module = made(attn_mask_type=word, window_size=window, bottom_right_diagonal=diagonal)
    check(module(*inputs), batch_attention(*inputs, terms)[0], inputs)


def test_arguments_of_forward_override_those_of_the_constructor():
    inputs = qkv()
    out = made()(*inputs, attn_mask_type="no_mask", window_size=(2, 2))
    check(out, batch_attention(*inputs, Terms(window=(2, 2)))[0], inputs)


def test_packed_sequences_with_padding_between_them():
    lengths = [3, 0, 7]
    inputs = tensors((16, 4, 8), (16, 2, 8), (16, 2, 8))
    starts = [0, 4, 6]
    want = torch.zeros(16, 4, 8, dtype=torch.float64)
    for start, length in zip(starts, lengths):
        rows = slice(start, start + length)
        if length:
            want[rows] = sequence_attention(*(t[rows] for t in inputs), Terms(causal=True))[0]
    ends = torch.tensor([0, 3, 3, 10], dtype=torch.int32)
    padded = torch.tensor([0, 4, 6, 16], dtype=torch.int32)
    out = made()(
        *inputs, qkv_format="thd", attn_mask_type="padding_causal", cu_seqlens_q=ends,
        cu_seqlens_kv=ends, cu_seqlens_q_padded=padded, cu_seqlens_kv_padded=padded,
    )
    check(out, want, inputs)


def test_padded_batch():
    inputs = qkv(sq=9, sk=9)
    ends = torch.tensor([0, 5, 14], dtype=torch.int32)
    out = made()(*inputs, attn_mask_type="padding,causal", cu_seqlens_q=ends, cu_seqlens_kv=ends)
    first = sequence_attention(*(t[0, :5] for t in inputs), Terms(causal=True))[0]
    assert relative_rms(out[0, :5], first.flatten(-2)) <= 2e-6
    assert not out[0, 5:].any()


@pytest.mark.parametrize("softmax_type", ["off-by-one", "learnable"])
def test_sinks(softmax_type):
    inputs = qkv()
    module = made(softmax_type=softmax_type)
    if softmax_type == "learnable":
        assert module.state_dict()["softmax_offset"].shape == (4,)
        torch.nn.init.normal_(module.softmax_offset)
        inputs.append(module.softmax_offset)
    sinks = module.softmax_offset if softmax_type == "learnable" else torch.zeros(4)
    want = batch_attention(*inputs[:3], Terms(causal=True, sinks=sinks))[0]
    check(module(*inputs[:3]), want, inputs)


def test_bias_alibi_and_scale():
    inputs = qkv()
    bias = tensors((1, 4, 12, 12), seed=2)[0]
    out = made(attn_mask_type="no_mask", softmax_scale=0.4)(
        *inputs, core_attention_bias_type="post_scale_bias", core_attention_bias=bias
    )
    check(out, batch_attention(*inputs, Terms(bias=bias, scale=0.4))[0], [*inputs, bias])
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    out = made()(*inputs, core_attention_bias_type="alibi", alibi_slopes=slopes)
    check(out, batch_attention(*inputs, Terms(causal=True, slopes=slopes))[0], inputs)


def test_max_logit_and_checkpointing():
    inputs = qkv()
    out, largest = made(return_max_logit=True)(*inputs, checkpoint_core_attention=True)
    want, _, want_largest = batch_attention(*inputs, Terms(causal=True))
    assert relative_rms(largest, want_largest) <= 2e-6
    check(out, want, inputs)


def test_fused_projections():
    q, k, v = tensors((2, 6, 4, 8), (2, 6, 4, 8), (2, 6, 4, 8))
    module = DotProductAttention(4, 8, qkv_format="bshd")
    want = module(q, k, v)
    assert torch.equal(module(qkv_layer=torch.stack((q, k, v), 2)), want)
    by_head = torch.stack((q, k, v), 3)
    assert torch.equal(module(qkv_layer=by_head, qkv_interleave_dim=-2), want)
    assert torch.equal(module(q, kv_layer=torch.stack((k, v), 2)), want)


def test_dropout_follows_training_mode():
    inputs = qkv()
    module = made(attention_dropout=0.5)
    module.dropout_rng = (3, 1)
    dropped = module(*inputs)
    assert torch.equal(dropped, module(*inputs))
    module.dropout_rng = (4, 1)
    assert not torch.equal(dropped, module(*inputs))
    check(module.eval()(*inputs), batch_attention(*inputs, Terms(causal=True))[0], inputs)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"attn_mask_type": "arbitrary"}, "arbitrary"),
        ({"attn_mask_type": "padding", "attention_mask": torch.zeros(2, 1, 1, 12)}, "cu_seqlens_q"),
        ({"inference_params": object()}, "inference_params"),
        ({"fp8_output": True}, "fp8_output"),
        ({"score_mod": print}, "score_mod"),
        ({"core_attention_bias_type": "pre_scale_bias"}, "post_scale_bias"),
        ({"core_attention_bias_type": "alibi", "attn_mask_type": "no_mask"}, "alibi"),
        ({"core_attention_bias_type": "alibi", "alibi_slopes": torch.ones(2, 4)}, r"\(2, 4\)"),
    ],
)
def test_refusals(arguments, expected):
    with pytest.raises(longspan.Unsupported, match=expected):
        made()(*qkv(), **arguments)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"attn_mask_type": "diagonal"}, "diagonal"),
        ({"window_size": (3, 2)}, "later keys"),
        ({"attn_mask_type": "no_mask", "window_size": (-1, 0)}, "causal mask"),
        ({"attn_mask_type": "padding"}, "cu_seqlens_q"),
        ({"core_attention_bias": torch.zeros(1, 4, 12, 12)}, "post_scale_bias"),
        ({"core_attention_bias_type": "post_scale_bias"}, "without core_attention_bias"),
        ({"alibi_slopes": torch.ones(4)}, "say 'alibi'"),
        ({"window_size": 3}, "window_size is 3"),
        ({"cu_seqlens_q": torch.tensor([0, 6, 12])}, "a mask type that does not read it"),
        ({"attn_mask_type": "padding", "cu_seqlens_q": torch.tensor([0, 6, 12]),
          "cu_seqlens_q_padded": torch.tensor([0, 12, 24])}, "cu_seqlens_q_padded.*'thd'"),
        ({"qkv_layer": torch.ones(1, 12, 3, 4, 8)}, "query_layer is given beside qkv_layer"),
        ({"kv_layer": torch.ones(1, 12, 2, 4, 8)}, "key_layer is given beside kv_layer"),
    ],
)
def test_wrong_values_are_named(arguments, expected):
    with pytest.raises(longspan.InvalidArgument, match=expected):
        made()(*qkv(), **arguments)


def test_wrong_heads_formats_and_groups_are_named():
    with pytest.raises(longspan.InvalidArgument, match="4 and 4"):
        DotProductAttention(4, 8)(*qkv())
    with pytest.raises(longspan.InvalidArgument, match="num_attention_heads is 5 over 2"):
        DotProductAttention(5, 8, tp_size=2)
    with pytest.raises(longspan.InvalidArgument, match="dims 8 and 8.*kv_channels.*16 and 16"):
        DotProductAttention(4, 16, num_gqa_groups=2)(*qkv())
    with pytest.raises(longspan.InvalidArgument, match="q is a NoneType"):
        made()()
    with pytest.raises(longspan.InvalidArgument, match="'bhsd'"):
        DotProductAttention(4, 8, qkv_format="bhsd")
    with pytest.raises(longspan.InvalidArgument, match="'ulysses'"):
        made(cp_comm_type="ulysses")
    with pytest.raises(longspan.Unsupported, match="list of 2 groups"):
        made().set_context_parallel_group([None, None], [0, 1], None, "a2a+p2p")
    with pytest.raises(longspan.InvalidArgument, match="end at 7"):
        ends = torch.tensor([0, 7])
        made()(*(t[0] for t in qkv()), qkv_format="thd", cu_seqlens_q=ends)
