"""Attention under torch.func, and derivatives that are refused."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap

import longspan
from longspan.torch import attention, engine_of

CALLS = 3


def batches():
    generator = torch.Generator().manual_seed(0)
    shapes = [(CALLS, 2, 9, 4, 8), (CALLS, 2, 9, 2, 8)]
    return [torch.randn(s, generator=generator) for s in shapes]


def run(q, k):
    return attention(q, k, k, causal=True)


def plain_gradients(q, k):
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    return torch.autograd.grad(run(q, k).square().sum(), (q, k))


def test_vmap_is_a_call_for_each():
    q, k = batches()
    assert torch.equal(vmap(run)(q, k), torch.stack([run(*each) for each in zip(q, k)]))
    shared = torch.stack([run(each, k[0]) for each in q])
    assert torch.equal(vmap(run, in_dims=(1, None))(q.transpose(0, 1), k[0]), shared)
    assert torch.equal(vmap(run, out_dims=2)(q, k), vmap(run)(q, k).movedim(0, 2))


def test_gradients_are_those_of_autograd():
    q, k = batches()
    loss = lambda q, k: run(q, k).square().sum()  # noqa: E731
    wanted = [torch.stack(each) for each in zip(*map(plain_gradients, q, k))]
    one = grad(loss, argnums=(0, 1))(q[0], k[0])
    inside = vmap(grad(loss, argnums=(0, 1)))(q, k)
    outside = grad(lambda q, k: vmap(run)(q, k).square().sum(), argnums=(0, 1))(q, k)
    for i, want in enumerate(wanted):
        assert torch.equal(one[i], want[0])
        assert torch.equal(inside[i], want)
        assert torch.equal(outside[i], want)
    o, back = vjp(run, q[0], k[0])
    for got, want in zip(back(2 * o), wanted):
        assert torch.equal(got, want[0])


def test_jacobian_rows_are_gradients():
    q, k = batches()
    q, k = q[0, :1].double(), k[0, :1].double()
    rows = jacrev(lambda q: run(q, k).sum((0, 1, 2)))(q)
    x = q.clone().requires_grad_()
    for i, row in enumerate(rows):
        want, = torch.autograd.grad(run(x, k).sum((0, 1, 2))[i], x)
        assert torch.equal(row, want)


def test_sinks_bias_and_lse():
    q, k = batches()
    sinks, bias = torch.randn(CALLS, 4), torch.randn(1, 1, 9, 9)

    def loss(q, k, sinks, bias):
        o, lse = attention(q, k, k, sinks=sinks, bias=bias, return_lse=True)
        return o.square().sum() + 0 * lse.sum()

    got = vmap(grad(loss, argnums=(2, 3)), in_dims=(0, 0, 0, None))(q, k, sinks, bias)
    for i in range(CALLS):
        own = sinks[i].clone().requires_grad_()
        same = bias.clone().requires_grad_()
        want = torch.autograd.grad(loss(q[i], k[i], own, same), (own, same))
        assert torch.equal(got[0][i], want[0])
        assert torch.equal(got[1][i], want[1])


def test_what_is_not_computed_is_refused():
    q, k = (x[0] for x in batches())
    alone = lambda q: run(q, k)  # noqa: E731
    for call in (lambda: jvp(alone, (q,), (q,)), lambda: jacfwd(alone)(q)):
        with pytest.raises(longspan.Unsupported, match="use grad, vjp or jacrev"):
            call()
    with forward_ad.dual_level(), pytest.raises(longspan.Unsupported, match="forward-mode"):
        alone(forward_ad.make_dual(q, q))
    with pytest.raises(longspan.Unsupported, match="second derivatives"):
        grad(lambda q: grad(lambda q: alone(q).square().sum())(q).sum())(q)
    ahead = engine_of(options=longspan.Options(backward="none")).plan(
        dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9]
    )
    with pytest.raises(longspan.Unsupported, match="forward alone"):
        grad(lambda q: attention(q, k, k, plan=ahead).sum())(q)


def test_lengths_on_the_device_are_shared():
    q, k = batches()
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9], device_lengths=True)
    lengths = torch.tensor([4, 9], dtype=torch.int32)
    call = lambda q, k, n: attention(  # noqa: E731
        q, k, k, plan=plan, actual_lengths=n, actual_kv_lengths=n
    )
    got = vmap(call, in_dims=(0, 0, None))(q, k, lengths)
    assert torch.equal(got, torch.stack([call(a, b, lengths) for a, b in zip(q, k)]))
    with pytest.raises(longspan.InvalidArgument, match="vmap over actual_lengths"):
        vmap(call)(q, k, lengths.expand(CALLS, 2))


def second_derivative_by(route):
    q, k = (x[0].requires_grad_() for x in batches())
    loss = lambda q: run(q, k).square().sum()  # noqa: E731
    if route == "hessian":
        return torch.autograd.functional.hessian(loss, q)
    if route == "tangents by two gradients":
        return torch.autograd.functional.jvp(lambda q: run(q, k), q, q)
    if route == "plan":
        plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9], causal=True)
        o = attention(q, k, k, plan=plan)
    elif route == "operator":
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False):
            o = run(q, k)
    else:
        o = run(q, k)
    loss = o.sum() if route == "constant gradient" else o.square().sum()
    dq, = torch.autograd.grad(loss, q, create_graph=True)
    return torch.autograd.grad(dq.square().sum(), q)


@pytest.mark.parametrize(
    "route",
    ["create_graph", "constant gradient", "plan", "operator", "hessian",
     "tangents by two gradients"],
)
def test_second_derivatives_are_refused_by_every_route(route):
    with pytest.raises(longspan.Unsupported, match="second derivatives of attention"):
        second_derivative_by(route)


def test_first_derivatives_are_the_same_where_a_graph_is_kept():
    q, k = (x[0].requires_grad_() for x in batches())
    kept = torch.autograd.grad(run(q, k).square().sum(), (q, k), create_graph=True)
    for got, want in zip(kept, plain_gradients(q, k)):
        assert torch.equal(got, want)


def test_several_gradients_at_once_name_what_to_use():
    q, k = (x[0].requires_grad_() for x in batches())
    o = run(q, k)
    with pytest.raises(longspan.Unsupported, match="jacrev"):
        torch.autograd.grad(o, q, torch.ones(3, *o.shape), is_grads_batched=True)


def test_linearize_is_refused():
    q, k = (x[0] for x in batches())
    with pytest.raises(longspan.Unsupported, match="forward-mode"):
        torch.func.linearize(lambda q: run(q, k), q)


def test_what_a_vmap_cannot_give_is_named():
    q, k = batches()
    with pytest.raises(longspan.InvalidArgument, match="vmap over 0 calls"):
        vmap(run)(q[:0], k[:0])
    lengths = torch.full((CALLS, 2), 9)
    with pytest.raises(longspan.InvalidArgument, match="vmap over lengths"):
        vmap(lambda q, k, n: attention(q, k, k, lengths=n))(q, k, lengths)
    with pytest.raises(longspan.InvalidArgument, match="randomness='same'"):
        vmap(lambda q, k: attention(q, k, k, dropout=0.5), randomness="different")(q, k)
