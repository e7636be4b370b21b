"""longspan.torch on one GPU against float64."""

import pytest
import torch

import longspan
from longspan.torch import attention, engine_of
from on_gpu import BARS, DEVICE, judge, judge_lse, provider, qkv, random_like, tensors, truth
from oracle import Terms, relative_rms

SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])
# What cuDNN offers in 16 bits, and more.
BY_CUDNN = {
    "none": ({}, Terms()),
    "causal": ({"causal": True}, Terms(causal=True)),
    "window": ({"causal": True, "window": (40, 0)}, Terms(causal=True, window=(40, 0))),
    "scale": ({"causal": True, "scale": 0.3}, Terms(causal=True, scale=0.3)),
}
MORE = {
    "both_sides": ({"window": (30, 4)}, Terms(window=(30, 4))),
    "chunk": ({"causal": True, "chunk": 48}, Terms(causal=True, chunk=48)),
    "prefix": ({"causal": True, "prefix": [6, 6]}, Terms(causal=True, prefix=6)),
    "softcap": ({"softcap": 2.0, "causal": True}, Terms(softcap=2.0, causal=True)),
    "alibi": ({"alibi": SLOPES}, Terms(slopes=SLOPES)),
    "off_by_one": ({"sinks": "off_by_one"}, Terms(sinks=torch.zeros(4))),
}
HALVES = [torch.float16, torch.bfloat16]


def on_device(values: dict) -> dict:
    return {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in values.items()}


def run(arguments: dict, terms: Terms, dtype, options=longspan.Options()):
    inputs = qkv(dtype=dtype)
    o, lse = attention(*inputs, **on_device(arguments), options=options, return_lse=True)
    want, want_lse, _ = truth(*inputs, Terms(**on_device(vars(terms))))
    judge(o, want, inputs, arguments)
    judge_lse(lse, want_lse)


def chosen(dtype="bf16", **terms) -> tuple[str, str]:
    """Who computes forward and backward."""
    plan = engine_of(device=DEVICE).plan(
        dtype=dtype, heads=(4, 2), dim=64, lengths=[130, 130], **terms
    )
    return plan.forward[2], plan.backward[2]


@pytest.mark.parametrize("name", BY_CUDNN | MORE)
@pytest.mark.parametrize("dtype", BARS)
def test_options(name, dtype):
    run(*(BY_CUDNN | MORE)[name], dtype)


@pytest.mark.parametrize("name", BY_CUDNN)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.skipif(DEVICE.type != "cuda", reason="cuDNN computes on GPUs")
def test_cudnn(name, dtype):
    run(*BY_CUDNN[name], dtype, provider("cudnn"))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="which provider of GPUs computes")
def test_routing_is_told():
    assert chosen("f32", causal=True) == ("cuda/reference",) * 2
    assert "cuda/reference" not in chosen(causal=True)  # which is behind all that is faster
    plan = engine_of(device=DEVICE).plan(
        dtype="bf16", heads=(4, 2), dim=64, lengths=[130], dropout=0.5, bias="1,h"
    )
    assert plan.forward[2] == "cuda/reference" and plan.forward[3]
    with pytest.raises(longspan.Unsupported, match="dropout is not offered by cudnn") as raised:
        attention(*qkv(dtype=torch.bfloat16), dropout=0.5, options=provider("cudnn"))
    assert any(decline["name"] == "cudnn" for decline in raised.value.declines)


@pytest.mark.parametrize("heads", [(4, 4), (8, 2), (6, 1)])
@pytest.mark.parametrize("dtype", HALVES)
def test_groups_of_heads(heads, dtype):
    inputs = qkv(heads=heads, dtype=dtype)
    judge(attention(*inputs, causal=True), truth(*inputs, Terms(causal=True))[0], inputs)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize(("sq", "sk"), [(70, 200), (200, 70), (1, 150)])
def test_alignment_of_unequal_lengths(align, sq, sk):
    inputs = qkv(1, sq, sk=sk, dtype=torch.bfloat16)
    terms = Terms(causal=True, bottom_right=align == "bottom_right")
    judge(attention(*inputs, causal=True, align=align), truth(*inputs, terms)[0], inputs)


@pytest.mark.parametrize("dtype", BARS)
def test_packed_documents(dtype):
    lengths = [70, 0, 1, 129]
    inputs = tensors((200, 4, 64), (200, 2, 64), (200, 2, 64), dtype=dtype)
    ends = torch.tensor([0, 70, 70, 71, 200], dtype=torch.int32, device=DEVICE)
    o = attention(*inputs, layout="thd", cu_seqlens=ends, causal=True)
    parts = zip(*(tensor.split(lengths) for tensor in inputs))
    wants = [truth(*(p[None] for p in part), Terms(causal=True))[0][0]
             for part, length in zip(parts, lengths) if length]
    judge(o, torch.cat(wants), inputs)


def test_padding_is_never_read():
    q, k, v = qkv(dtype=torch.bfloat16)
    with torch.no_grad():
        for tensor in (q, k, v):
            tensor[1, 90:] = float("nan")
    o = attention(q, k, v, lengths=[130, 90], causal=True)
    want = truth(*(tensor[1:, :90] for tensor in (q, k, v)), Terms(causal=True))[0]
    assert relative_rms(o[1:, :90], want) <= BARS[torch.bfloat16]
    assert not o[1, 90:].any()
    for gradient in torch.autograd.grad(o, (q, k, v), random_like(o)):
        assert not gradient.isnan().any() and not gradient[1, 90:].any()


@pytest.mark.parametrize("dtype", BARS)
def test_sinks_and_bias_have_gradients(dtype):
    inputs = qkv(dtype=dtype)
    sinks = tensors((4,), seed=3)[0]
    bias = tensors((1, 4, 130, 130), dtype=dtype, seed=4)[0]
    o = attention(*inputs, sinks=sinks, bias=bias, causal=True)
    terms = Terms(causal=True, sinks=sinks, bias=bias)
    judge(o, truth(*inputs, terms)[0], [*inputs, sinks, bias])


def test_dropout_drops_what_the_cpu_drops():
    inputs = qkv(sq=40, dim=16)
    host = [tensor.detach().cpu().requires_grad_() for tensor in inputs]
    call = {"dropout": 0.4, "dropout_rng": (11, 3), "causal": True}
    o, want = attention(*inputs, **call), attention(*host, **call)
    assert relative_rms(o.cpu(), want) <= 4e-6
    mine = torch.autograd.grad(o, inputs, random_like(o))
    theirs = torch.autograd.grad(want, host, random_like(want))
    for one, other in zip(mine, theirs):
        assert relative_rms(one.cpu(), other) <= 4e-6


def test_largest_logits():
    q, k, v = qkv()
    with torch.no_grad():
        _, largest = attention(q, k, v, causal=True, return_max_logit=True)
    assert relative_rms(largest, truth(q, k, v, Terms(causal=True))[2]) <= 2e-6


def test_layouts_and_strides_are_taken_as_they_are():
    inputs = qkv(dtype=torch.bfloat16)
    want = attention(*inputs, causal=True)
    by_heads = attention(*(x.transpose(1, 2) for x in inputs), causal=True, layout="bhsd")
    assert torch.equal(by_heads.transpose(1, 2), want)
    packed = torch.cat(inputs, 2)  # heads of q, k and v behind each other
    assert torch.equal(attention(*packed.split([4, 2, 2], 2), causal=True), want)


def test_decoding_reads_a_long_cache():
    q, k, v = qkv(2, 1, (8, 2), sk=1000, dtype=torch.float16)
    with torch.no_grad():
        o = attention(q, k, v, causal=True, align="bottom_right")
    assert relative_rms(o, truth(q, k, v)[0]) <= BARS[torch.float16]


def test_empty_calls():
    q, k, v = tensors((0, 4, 64), (0, 2, 64), (0, 2, 64), dtype=torch.bfloat16)
    o = attention(q, k, v, layout="thd", lengths=[0, 0], causal=True)
    assert o.shape == (0, 4, 64)
    assert all(x.shape[0] == 0 for x in torch.autograd.grad(o.sum(), (q, k, v)))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="two kinds of memory")
def test_tensors_elsewhere_are_refused():
    q, k, v = (tensor.detach() for tensor in qkv())
    with pytest.raises(longspan.InvalidArgument, match="lies on cpu"):
        attention(q, k.cpu(), v)
    plan = engine_of(device="cpu").plan(dtype="f32", heads=(4, 2), dim=64, lengths=[130, 130])
    with pytest.raises(longspan.InvalidArgument, match="the engine computes on cpu"):
        attention(q, k, v, plan=plan)
