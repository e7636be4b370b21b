"""Tensors as they come: views of every kind, and what is refused by name."""

import pytest
import torch
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

import longspan
from longspan.torch import attention, engine_of

SHAPE = (2, 8, 4, 16)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


K = random(2, 8, 2, 16)
VIEWS = {
    "negated": lambda x: torch._neg_view(x),
    "imaginary part": lambda x: torch.complex(x, x).conj().imag,
    "flipped": lambda x: x.flip(1),
    "every second value": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "rows of a larger tensor": lambda x: x.repeat(1, 2, 1, 1)[:, ::2],
    "permuted": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "expanded": lambda x: x[:1, :1, :1].expand(SHAPE),
    "overlapping": lambda x: x.flatten()[:40].as_strided(SHAPE, (1, 1, 2, 1)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_are_their_values(view):
    base = random(*SHAPE).requires_grad_()
    dout = random(2, 8, 4, 17)[..., 1:]

    def run(form):
        o = attention(form(base), K, K, causal=True)
        return o.detach(), *torch.autograd.grad(o, base, view(dout))

    def run_plainly(form):
        o = attention(form(base).resolve_neg().contiguous(), K, K, causal=True)
        return o.detach(), *torch.autograd.grad(o, base, view(dout).resolve_neg().contiguous())

    for got, want in zip(run(view), run_plainly(view)):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.transpose(2, 3), lambda x: x[:, :, :, :1].expand(x.shape),
     lambda x: x[:, :1].expand(x.shape), lambda x: torch._neg_view(x)],
    ids=["transposed", "one column", "one head", "negated"],
)
def test_views_of_bias_are_their_values(view):
    q, bias = random(*SHAPE), random(2, 4, 8, 8).requires_grad_()
    gradients = []
    for form in (view, lambda x: view(x).resolve_neg().contiguous()):
        o = attention(q, K, K, bias=form(bias))
        gradients.append((o.detach(), *torch.autograd.grad(o.square().sum(), bias)))
    assert all(torch.equal(one, other) for one, other in zip(*gradients))


def test_bias_is_cast_by_autocast_as_q_is():
    q, bias = random(*SHAPE), random(1, 4, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = attention(q, K, K, bias=bias)
    assert torch.equal(o, attention(*(x.bfloat16() for x in (q, K, K)), bias=bias.bfloat16()))


def jagged(x):
    return torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)


def distributed(x):
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return DTensor.from_local(x, init_device_mesh("cpu", (1,)), [Shard(1)])


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda x: x.numpy(), "q is a ndarray; it must be a torch.Tensor"),
        (lambda x: None, "q is a NoneType"),
        (lambda x: x.to_sparse(), "q has the layout torch.sparse_coo"),
        (jagged, "layout='thd' with cu_seqlens"),
        (lambda x: x.to("meta"), "q lies on meta"),
        (distributed, r"q.to_local\(\)"),
        (lambda x: x[:0], "a batch of 0"),
    ],
    ids=["numpy", "none", "sparse", "jagged", "meta", "distributed", "no sequence"],
)
def test_other_kinds_are_refused_by_name(form, message):
    with pytest.raises(longspan.InvalidArgument, match=message):
        attention(form(random(*SHAPE)), K, K)


def test_other_kinds_are_refused_beside_a_plan():
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=16, lengths=[8, 8])
    with pytest.raises(longspan.InvalidArgument, match=r"q.to_local\(\)"):
        attention(distributed(random(*SHAPE)), K, K, plan=plan)
    parameter = torch.nn.Parameter(random(*SHAPE))
    assert torch.equal(attention(parameter, K, K, plan=plan), attention(random(*SHAPE), K, K))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alibi": "yes"}, "alibi is 'yes'"),
        ({"alibi": [0.5] * 4}, "a tensor"),
        ({"alibi": 0}, "alibi is 0"),
        ({"alibi": torch.ones(4, requires_grad=True)}, r"alibi.detach\(\)"),
        ({"alibi": torch.ones(4, device="meta")}, "alibi lies on meta and q on cpu"),
        ({"bias": torch.ones(1, 4, 8, 8, device="meta")}, r"bias.to\(q.device\)"),
        ({"bias": torch.ones(1, 4, 8, 8).numpy()}, "bias is a ndarray"),
        ({"sinks": [0.0] * 4}, "sinks is"),
        ({"scale": torch.ones((), requires_grad=True)}, "scale requires a gradient"),
        ({"scale": torch.ones(4)}, "must be a number"),
        ({"softcap": None}, "softcap is None"),
        ({"window": (1, 2, 3)}, r"window is \(1, 2, 3\)"),
        ({"window": (1.5, 0)}, "list of integers"),
        ({"window": 2.0}, "window is"),
        ({"prefix": 2, "causal": True}, "prefix is 2"),
        ({"chunk": 2.5}, "chunk is"),
        ({"lengths": [3.7, 8]}, "lengths is"),
        ({"lengths": torch.tensor([3.7, 8])}, "lengths is"),
        ({"lengths": 8}, "lengths is 8"),
        ({"cu_seqlens": torch.tensor([[0, 8, 16]])}, "cu_seqlens is"),
        ({"cu_seqlens": [0, 8, 16], "lengths": [8, 8]}, "lengths and cu_seqlens say the same"),
        ({"dropout": 0.5, "dropout_rng": 7}, "dropout_rng is 7"),
        ({"dropout": 0.5, "dropout_rng": (1.5, 2)}, "dropout_rng is"),
        ({"dropout": 0.5, "dropout_rng": (1, 2, 3)}, "seed, offset"),
        ({"options": {"forward": "ring"}}, r"longspan.Options\(...\)"),
        ({"plan": "ring"}, "plan is a str"),
    ],
)
def test_arguments_of_other_kinds_are_refused_by_name(change, message):
    with pytest.raises(longspan.InvalidArgument, match=message):
        attention(random(*SHAPE), K, K, **change)


def test_no_alibi_is_said_by_none_too():
    q = random(*SHAPE)
    plain = attention(q, K, K, causal=True)
    assert torch.equal(attention(q, K, K, causal=True, alibi=None), plain)
    with torch.no_grad():
        trained = torch.zeros(4, requires_grad=True)
        assert torch.equal(attention(q, K, K, causal=True, alibi=trained), plain)
