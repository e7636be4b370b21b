"""longspan.torch.attention on one rank against float64."""

import pytest
import torch

import longspan
from longspan.torch import attention, engine_of
from oracle import BARS, Terms, batch_attention, gradients, relative_rms, sequence_attention


def tensors(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def judge(got, want, inputs, seed=9):
    """o and the gradients of all inputs."""
    generator = torch.Generator().manual_seed(seed)
    bar = BARS[inputs[0].dtype]
    dout = torch.randn(got.shape, generator=generator, dtype=torch.float64).to(got.dtype)
    assert relative_rms(got, want) <= bar
    mine, theirs = gradients(got, dout, inputs), gradients(want, dout, inputs)
    for number, (one, other) in enumerate(zip(mine, theirs)):
        assert one.dtype == inputs[number].dtype
        assert relative_rms(one, other) <= bar, f"gradient of input {number}"


SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])
OPTIONS = [
    ({}, Terms()),
    ({"causal": True}, Terms(causal=True)),
    ({"causal": True, "window": (5, 0)}, Terms(causal=True, window=(5, 0))),
    ({"window": (3, 4)}, Terms(window=(3, 4))),
    ({"causal": True, "chunk": 8}, Terms(causal=True, chunk=8)),
    ({"causal": True, "prefix": [6, 6]}, Terms(causal=True, prefix=6)),
    ({"scale": 0.3, "causal": True}, Terms(scale=0.3, causal=True)),
    ({"softcap": 2.0}, Terms(softcap=2.0)),
    ({"alibi": SLOPES}, Terms(slopes=SLOPES)),
    ({"alibi": True, "causal": True}, Terms(causal=True, slopes=2.0 ** -torch.arange(2.0, 9, 2))),
    ({"sinks": "off_by_one"}, Terms(sinks=torch.zeros(4))),
]


@pytest.mark.parametrize(("arguments", "terms"), OPTIONS)
@pytest.mark.parametrize("dtype", BARS)
def test_options(arguments, terms, dtype):
    inputs = tensors((2, 19, 4, 16), (2, 19, 2, 16), (2, 19, 2, 24), dtype=dtype)
    judge(attention(*inputs, **arguments), batch_attention(*inputs, terms)[0], inputs)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize(("sq", "sk"), [(7, 20), (20, 7)])
def test_alignment_of_unequal_lengths(align, sq, sk):
    inputs = tensors((1, sq, 4, 8), (1, sk, 4, 8), (1, sk, 4, 8))
    terms = Terms(causal=True, bottom_right=align == "bottom_right")
    got = attention(*inputs, causal=True, align=align)
    judge(got, batch_attention(*inputs, terms)[0], inputs)
    with pytest.raises(longspan.InvalidArgument, match="align"):
        attention(*inputs, causal=True)


def test_queries_without_keys_give_zero_and_minus_infinity():
    q, k, v = tensors((1, 9, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8))
    o, lse = attention(q, k, v, causal=True, align="bottom_right", return_lse=True)
    assert torch.equal(o[:, :5], torch.zeros_like(o[:, :5]))
    assert torch.equal(lse[:, :5], torch.full_like(lse[:, :5], -torch.inf))


@pytest.mark.parametrize("layout", ["bshd", "sbhd", "bhsd"])
def test_layouts(layout):
    order = {"bshd": (0, 1, 2, 3), "sbhd": (1, 0, 2, 3), "bhsd": (0, 2, 1, 3)}[layout]
    plain = tensors((2, 11, 4, 8), (2, 11, 2, 8), (2, 11, 2, 8))
    given = [t.detach().permute(order).contiguous().requires_grad_() for t in plain]
    got = attention(*given, causal=True, layout=layout)
    assert got.is_contiguous()
    want = batch_attention(*(t.permute(order) for t in given), Terms(causal=True))[0].permute(order)
    judge(got, want, given)


def packed_want(q, k, v, lengths, kv_lengths, terms):
    parts = zip(q.split(lengths), k.split(kv_lengths), v.split(kv_lengths))
    return torch.cat([sequence_attention(*part, terms)[0] for part in parts])


@pytest.mark.parametrize("kind", ["list", "tensor", "lengths"])
def test_packed(kind):
    lengths = [5, 0, 17, 1]
    inputs = tensors((23, 4, 16), (23, 2, 16), (23, 2, 16))
    ends = [0, 5, 5, 22, 23]
    how = {"list": {"cu_seqlens": ends}, "tensor": {"cu_seqlens": torch.tensor(ends)},
           "lengths": {"lengths": lengths}}[kind]
    got = attention(*inputs, causal=True, layout="thd", **how)
    judge(got, packed_want(*inputs, lengths, lengths, Terms(causal=True)), inputs)


def test_packed_with_keys_of_their_own():
    lengths, kv_lengths = [5, 8], [9, 2]
    inputs = tensors((13, 2, 8), (11, 2, 8), (11, 2, 8))
    got = attention(*inputs, layout="thd", cu_seqlens=[0, 5, 13], cu_seqlens_kv=[0, 9, 11],
                    causal=True, align="bottom_right")
    terms = Terms(causal=True, bottom_right=True)
    judge(got, packed_want(*inputs, lengths, kv_lengths, terms), inputs)


def test_padding_is_neither_read_nor_left_unwritten():
    q, k, v = tensors((2, 10, 2, 8), (2, 10, 2, 8), (2, 10, 2, 8))
    with torch.no_grad():
        for t in (q, k, v):
            t[1, 6:] = torch.nan
    o = attention(q, k, v, causal=True, lengths=[10, 6])
    assert torch.equal(o[1, 6:], torch.zeros_like(o[1, 6:]))
    valid = [t[1:, :6] for t in (q, k, v)]
    assert relative_rms(o[1:, :6], batch_attention(*valid, Terms(causal=True))[0]) <= 2e-6
    for gradient in torch.autograd.grad(o.sum(), (q, k, v)):
        assert torch.equal(gradient[1, 6:], torch.zeros_like(gradient[1, 6:]))
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_learnable_sinks(dtype):
    inputs = tensors((2, 12, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8), (4,), dtype=dtype)
    q, k, v, sinks = inputs
    want = batch_attention(q, k, v, Terms(causal=True, sinks=sinks))[0]
    judge(attention(q, k, v, causal=True, sinks=sinks), want, inputs)


@pytest.mark.parametrize("shape", [(2, 4, 12, 12), (1, 4, 12, 12), (2, 1, 12, 12), (1, 1, 12, 12),
                                   (1, 1, 1, 12)])
def test_bias(shape):
    inputs = tensors((2, 12, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8), shape)
    q, k, v, bias = inputs
    want = batch_attention(q, k, v, Terms(bias=bias))[0]
    judge(attention(q, k, v, bias=bias), want, inputs)


def test_statistics():
    q, k, v = tensors((2, 12, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8))
    _, want_lse, want_largest = batch_attention(q, k, v, Terms(causal=True))
    o, lse, largest = attention(q, k, v, causal=True, return_lse=True, return_max_logit=True)
    assert relative_rms(lse, want_lse) <= 2e-6
    assert relative_rms(largest, want_largest) <= 2e-6
    assert not lse.requires_grad and o.requires_grad


def test_dropout_replays_and_differs():
    q, k, v = tensors((1, 40, 2, 8), (1, 40, 2, 8), (1, 40, 2, 8))

    def run(rng=None):
        return attention(q, k, v, dropout=0.5, dropout_rng=rng)

    assert torch.equal(run((7, 0)), run((7, 0)))
    assert not torch.equal(run((7, 0)), run((7, 1)))
    assert not torch.equal(run((7, 0)), run((8, 0)))
    torch.manual_seed(3)
    first = run()
    torch.manual_seed(3)
    assert torch.equal(first, run())
    assert not torch.equal(first, run())


def test_dropout_keeps_the_mean():
    q, k, v = tensors((1, 64, 2, 8), (1, 64, 2, 8), (1, 64, 2, 8))
    runs = [attention(q, k, v, dropout=0.2, dropout_rng=(1, step)) for step in range(200)]
    mean = torch.stack(runs).mean(0)
    assert relative_rms(mean, batch_attention(q, k, v)[0]) < 0.1


def test_plan_is_the_same_and_takes_values():
    q, k, v = tensors((2, 12, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8))
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[12, 12], causal=True)
    assert torch.equal(attention(q, k, v, plan=plan), attention(q, k, v, causal=True))
    scaled = attention(q, k, v, plan=plan, scale=0.2)
    assert relative_rms(scaled, batch_attention(q, k, v, Terms(causal=True, scale=0.2))[0]) <= 2e-6
    with pytest.raises(longspan.InvalidArgument, match="given beside a plan"):
        attention(q, k, v, plan=plan, causal=True)


@pytest.mark.parametrize(
    "change",
    [{"alibi": True}, {"alibi": torch.ones(4)}, {"sinks": "off_by_one"}, {"sinks": torch.ones(4)},
     {"return_max_logit": True}, {"softcap": 2.0}, {"dropout": 0.5, "dropout_rng": (1, 0)},
     {"bias": torch.zeros(1, 1, 12, 12)}, {"prefix": [1, 1]}],
)
def test_what_a_plan_has_not_is_refused(change):
    q, k, v = tensors((2, 12, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8))
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[12, 12], causal=True)
    with pytest.raises(longspan.InvalidArgument):
        attention(q, k, v, plan=plan, **change)


def test_device_lengths():
    plan = engine_of().plan(dtype="f32", heads=(2, 2), dim=8, lengths=[12, 12], causal=True,
                            device_lengths=True)
    q, k, v = tensors((2, 12, 2, 8), (2, 12, 2, 8), (2, 12, 2, 8))
    actual = torch.tensor([12, 5], dtype=torch.int32)
    o = attention(q, k, v, plan=plan, actual_lengths=actual, actual_kv_lengths=actual)
    want = attention(q, k, v, causal=True, lengths=[12, 5])
    assert relative_rms(o, want) <= 2e-6
    assert torch.equal(o[1, 5:], torch.zeros_like(o[1, 5:]))


def test_forward_alone_refuses_gradients_with_the_reason():
    q, k, v = tensors((1, 8, 2, 8), (1, 8, 2, 8), (1, 8, 2, 8))
    options = longspan.Options(backward="none")
    with torch.no_grad():
        attention(q, k, v, options=options)
    with pytest.raises(longspan.Unsupported, match="forward alone"):
        attention(q, k, v, options=options)


def test_declines_travel_with_the_error():
    q, k, v = tensors((1, 8, 2, 8), (1, 8, 2, 8), (1, 8, 2, 8))
    options = longspan.Options(forward_provider="off:cpu/tiled", require_fp32_partials=True)
    attention(q, k, v, options=options)
    only = longspan.Options(forward_provider="require:cudnn")
    with pytest.raises(longspan.Unsupported, match="cudnn") as raised:
        attention(q, k, v, options=only)
    assert any(decline["name"] == "cudnn" for decline in raised.value.declines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "hdbs"}, "layout is 'hdbs'"),
        ({"sinks": "three"}, "sinks is 'three'"),
        ({"bias": torch.zeros(3, 3)}, "bias has 2 extents"),
        ({"bias": torch.zeros(1, 1, 8, 9)}, "bias"),
        ({"sinks": torch.zeros(5)}, "sink"),
        ({"dropout": 1.0}, "dropout"),
        ({"window": (-2, 0)}, "window"),
        ({"lengths": [9]}, "extent 8 but length 9"),
        ({"group": "world"}, "group is a str"),
        ({"layout": "thd"}, "q has 4 extents; layout 'thd' takes 3"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"dropout": 0.5, "dropout_rng": (-1, 0)}, "dropout_rng"),
        ({"dropout": 0.5, "dropout_rng": (0, 2**64)}, "dropout_rng"),
    ],
)
def test_bad_arguments_name_themselves(change, message):
    q, k, v = tensors((1, 8, 2, 8), (1, 8, 2, 8), (1, 8, 2, 8))
    with pytest.raises(longspan.InvalidArgument, match=message):
        attention(q, k, v, **change)


def test_bad_tensors_name_themselves():
    q, k, v = tensors((1, 8, 2, 8), (1, 8, 2, 8), (1, 8, 2, 8))
    with pytest.raises(longspan.InvalidArgument, match="one type"):
        attention(q.half(), k, v)
    with pytest.raises(longspan.InvalidArgument, match="one type"):
        attention(q.int(), k.int(), v.int())
    with pytest.raises(longspan.InvalidArgument, match="cu_seqlens or lengths"):
        attention(q[0], k[0], v[0], layout="thd")
    with pytest.raises(longspan.InvalidArgument, match="begin with 0"):
        attention(q[0], k[0], v[0], layout="thd", cu_seqlens=[3, 8])
    with pytest.raises(longspan.InvalidArgument, match="must not fall"):
        attention(q[0], k[0], v[0], layout="thd", cu_seqlens=[0, 9, 8])
    with pytest.raises(longspan.InvalidArgument):
        attention(q, k[:, :, :, :4], v)
