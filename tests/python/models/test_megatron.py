"""The call shape of Megatron-Core's core attention, on one rank."""

import dataclasses
import enum
import inspect
import types

import pytest
import torch

import longspan
from longspan.models.megatron import CoreAttention
from oracle import Terms, batch_attention, gradients, relative_rms, sequence_attention

FORWARD = ["query", "key", "value", "attention_mask", "attn_mask_type", "attention_bias",
           "packed_seq_params"]
CONSTRUCTOR = ["config", "layer_number", "attn_mask_type", "attention_type", "attention_dropout",
               "softmax_scale", "k_channels", "v_channels", "cp_comm_type", "pg_collection"]


class AttnMaskType(enum.Enum):
    padding = 1
    causal = 2
    no_mask = 3
    padding_causal = 4
    arbitrary = 5


@dataclasses.dataclass
class Config:
    num_attention_heads: int = 4
    num_query_groups: int = 2
    kv_channels: int = 8
    attention_dropout: float = 0.0
    tensor_model_parallel_size: int = 1
    context_parallel_size: int = 1
    window_size: tuple | None = None
    window_attn_skip_freq: int | list | None = None
    softmax_type: str = "vanilla"
    fp8_dot_product_attention: bool = False


@dataclasses.dataclass
class PackedSeqParams:
    qkv_format: str | None = "thd"
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_kv: torch.Tensor | None = None
    cu_seqlens_q_padded: torch.Tensor | None = None
    cu_seqlens_kv_padded: torch.Tensor | None = None
    cp_group: object = None


def names(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_signatures():
    assert names(CoreAttention.forward) == FORWARD
    assert names(CoreAttention.__init__) == CONSTRUCTOR


def made(layer=1, mask=AttnMaskType.causal, config=None, **arguments):
    return CoreAttention(config or Config(), layer, mask, "self", **arguments)


def tensors(*lead):
    generator = torch.Generator().manual_seed(0)
    shapes = [(*lead, 4, 8), (*lead, 2, 8), (*lead, 2, 8)]
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


def want_of(inputs, terms):
    """[seq, batch, heads * dim]"""
    o = batch_attention(*(t.transpose(0, 1) for t in inputs), terms)[0]
    return o.transpose(0, 1).flatten(-2)


def test_forward_and_gradients():
    inputs = tensors(10, 3)
    want, out = want_of(inputs, Terms(causal=True)), made()(*inputs, None)
    assert out.shape == (10, 3, 32)
    assert relative_rms(out, want) <= 2e-6
    dout = torch.randn(want.shape, generator=torch.Generator().manual_seed(1))
    for mine, other in zip(gradients(out, dout, inputs), gradients(want, dout, inputs)):
        assert relative_rms(mine, other) <= 2e-6


def test_the_mask_of_the_call_wins():
    inputs = tensors(10, 1)
    out = made()(*inputs, None, attn_mask_type=AttnMaskType.no_mask)
    assert relative_rms(out, want_of(inputs, Terms())) <= 2e-6


@pytest.mark.parametrize(
    "skipped, layers", [(None, {1, 2, 3, 4}), (2, {1, 3}), ([1, 0, 0, 1], {1, 4})]
)
def test_windows_by_layer(skipped, layers):
    config = Config(window_size=(3, 0), window_attn_skip_freq=skipped)
    inputs = tensors(10, 1)
    for layer in range(1, 5):
        window = (3, 0) if layer in layers else (-1, -1)
        want = want_of(inputs, Terms(causal=True, window=window))
        assert relative_rms(made(layer, config=config)(*inputs, None), want) <= 2e-6, layer


def test_packed_sequences():
    inputs = tensors(12)
    ends = torch.tensor([0, 5, 12], dtype=torch.int32)
    params = PackedSeqParams(cu_seqlens_q=ends, cu_seqlens_kv=ends)
    out = made()(*inputs, None, packed_seq_params=params)
    parts = [sequence_attention(*(t[a:b] for t in inputs), Terms(causal=True))[0]
             for a, b in ((0, 5), (5, 12))]
    assert relative_rms(out, torch.cat(parts).flatten(-2)) <= 2e-6


def test_bias_and_learnable_sinks():
    inputs = tensors(6, 2)
    bias = torch.randn(1, 4, 6, 6)
    module = made(config=Config(softmax_type="learnable"))
    torch.nn.init.normal_(module.softmax_offset)
    out = module(*inputs, None, attention_bias=bias)
    terms = Terms(causal=True, bias=bias, sinks=module.softmax_offset.detach())
    assert relative_rms(out, want_of(inputs, terms)) <= 2e-6


def test_refusals():
    inputs = tensors(6, 1)
    with pytest.raises(longspan.Unsupported, match="arbitrary"):
        made()(*inputs, torch.zeros(1, 1, 6, 6), attn_mask_type=AttnMaskType.arbitrary)
    with pytest.raises(longspan.Unsupported, match="fp8_dot_product_attention"):
        made(config=Config(fp8_dot_product_attention=True))
    with pytest.raises(longspan.InvalidArgument, match="'cp'"):
        made(config=Config(context_parallel_size=2))
    with pytest.raises(longspan.InvalidArgument, match="cu_seqlens_q"):
        made()(*tensors(6), None, packed_seq_params=PackedSeqParams())


def test_what_is_not_honoured_is_named():
    for name in ("qk_clip", "log_max_attention_logit"):
        config = Config()
        setattr(config, name, True)
        with pytest.raises(longspan.Unsupported, match=name):
            made(config=config)
    ends = torch.tensor([0, 6], dtype=torch.int32)
    params = PackedSeqParams(cu_seqlens_q=ends, cu_seqlens_kv=ends)
    params.local_cp_size = 2
    with pytest.raises(longspan.Unsupported, match="local_cp_size is 2"):
        made()(*tensors(6), None, packed_seq_params=params)


def test_groups_agree_with_the_config():
    two = types.SimpleNamespace(size=lambda: 2)
    with pytest.raises(longspan.InvalidArgument, match="1 ranks.*pg_collection.cp has 2"):
        made(pg_collection=types.SimpleNamespace(cp=two, tp=None))
    with pytest.raises(longspan.InvalidArgument, match="num_query_groups|num_gqa_groups is 3"):
        made(config=Config(num_query_groups=3, tensor_model_parallel_size=2),
             pg_collection=types.SimpleNamespace(cp=None, tp=two))


def test_padded_packs_and_repeated_ends():
    inputs = tensors(16)
    terms = Terms(causal=True)
    lengths, extents = (torch.tensor(ends, dtype=torch.int32) for ends in ([0, 5, 11], [0, 8, 16]))
    params = PackedSeqParams(cu_seqlens_q=lengths, cu_seqlens_kv=lengths,
                             cu_seqlens_q_padded=extents, cu_seqlens_kv_padded=extents)
    out = made()(*inputs, None, packed_seq_params=params)
    for begin, end in ((0, 5), (8, 14)):
        want = sequence_attention(*(t[begin:end] for t in inputs), terms)[0].flatten(-2)
        assert relative_rms(out[begin:end], want) <= 2e-6
    assert not out[5:8].any() and not out[14:].any()
    repeated = torch.tensor([0, 5, 16, 16, 16], dtype=torch.int32)
    plain, params = repeated[:3], PackedSeqParams(cu_seqlens_q=repeated, cu_seqlens_kv=repeated)
    once = PackedSeqParams(cu_seqlens_q=plain, cu_seqlens_kv=plain)
    assert torch.equal(made()(*inputs, None, packed_seq_params=params),
                       made()(*inputs, None, packed_seq_params=once))
