"""Gradients under torch's modes: gradcheck, operators, compile, checkpoints, autocast."""

import functools

import pytest
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import longspan
from longspan.torch import attention, engine_of
from oracle import Terms, batch_attention, relative_rms


def tensors(dtype=torch.float32, sq=9, heads=(4, 2), dim=8):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, sq, heads[0], dim), (2, sq, heads[1], dim), (2, sq, heads[1], dim)]
    return [
        torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for s in shapes
    ]


@pytest.mark.parametrize(
    "arguments",
    [{"causal": True}, {"window": (2, 1), "softcap": 3.0}, {"alibi": True, "scale": 0.7},
     {"dropout": 0.3, "dropout_rng": (5, 1)}],
)
def test_gradcheck(arguments):
    inputs = tensors(torch.float64, sq=5, heads=(2, 1), dim=4)
    torch.autograd.gradcheck(functools.partial(attention, **arguments), inputs, atol=1e-7)


def test_gradcheck_of_sinks_and_bias():
    q, k, v = tensors(torch.float64, sq=5, heads=(2, 1), dim=4)
    sinks = torch.randn(2, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    run = lambda *t: attention(*t[:3], sinks=t[3], bias=t[4], causal=True)  # noqa: E731
    torch.autograd.gradcheck(run, (q, k, v, sinks, bias), atol=1e-7)


def operator_arguments(plan, q, k, v, sinks=None, bias=None):
    return (q, k, v, sinks, bias, None, None, None, plan.number, plan.scale, 0.0, -1.0, 0, 0)


def test_opcheck():
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9], causal=True)
    operator = torch.ops.longspan.attention.default
    torch.library.opcheck(operator, operator_arguments(plan, *tensors()))
    extra = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9], sink="learnable",
                             bias="1,h", max_logit=True)
    sinks = torch.randn(4, requires_grad=True)
    bias = torch.randn(1, 9, 4, 9, requires_grad=True)
    torch.library.opcheck(operator, operator_arguments(extra, *tensors(), sinks, bias))


def test_compile_without_breaks_and_without_recompiling():
    traces = []

    def backend(module, inputs):
        traces.append(module)
        return module.forward

    def block(q, k, v):
        return attention(q * 2, k, v, causal=True).sin()

    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=False)
    for seed in range(3):
        torch.manual_seed(seed)
        inputs = [torch.randn_like(t).requires_grad_() for t in tensors()]
        mine, plain = compiled(*inputs), block(*inputs)
        assert torch.equal(mine, plain)
        for one, other in zip(torch.autograd.grad(mine.sum(), inputs),
                              torch.autograd.grad(plain.sum(), inputs)):
            assert torch.equal(one, other)
    assert len(traces) == 1


def test_compile_by_inductor_with_a_plan():
    plan = engine_of().plan(dtype="f32", heads=(4, 2), dim=8, lengths=[9, 9], causal=True)
    inputs = tensors()
    compiled = torch.compile(lambda *t: attention(*t, plan=plan) + 1, fullgraph=True)
    o = compiled(*inputs)
    assert torch.equal(o, attention(*inputs, causal=True) + 1)
    o.sum().backward()
    assert all(t.grad is not None for t in inputs)


def test_checkpoint_with_dropout_replays_the_mask():
    inputs = tensors()

    def run(*t):
        return attention(*t, dropout=0.4)

    def gradients(call):
        torch.manual_seed(11)
        return torch.autograd.grad(call().square().sum(), inputs)

    plain = gradients(lambda: run(*inputs))
    for one, other in zip(plain, gradients(lambda: checkpoint(run, *inputs, use_reentrant=False))):
        assert torch.equal(one, other)


def test_selective_checkpoint_sees_the_operator():
    inputs, seen = tensors(), []

    def policy(context, operator, *args, **kwargs):
        if operator is torch.ops.longspan.attention.default:
            seen.append(context.is_recompute)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    run = lambda *t: attention(*t, causal=True).sin()  # noqa: E731
    o = checkpoint(run, *inputs, use_reentrant=False, context_fn=contexts)
    mine = torch.autograd.grad(o.sum(), inputs)
    for one, other in zip(mine, torch.autograd.grad(run(*inputs).sum(), inputs)):
        assert torch.equal(one, other)
    assert seen == [False, True]


def test_several_forwards_before_their_backwards():
    batches = [[t.detach().add(i).requires_grad_() for t in tensors()] for i in range(4)]
    results = [attention(*batch, causal=True) for batch in batches]
    mine = [torch.autograd.grad(o.sum(), batch) for o, batch in zip(results, batches)]
    for batch, gradients in zip(batches, mine):
        again = torch.autograd.grad(attention(*batch, causal=True).sum(), batch)
        assert all(torch.equal(one, other) for one, other in zip(gradients, again))


def test_saved_tensor_hooks_see_what_is_kept():
    inputs, packed = tensors(torch.bfloat16), []

    def pack(tensor):
        packed.append(tensor.nbytes)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        o, _ = attention(*inputs, causal=True, return_lse=True)
    o.sum().backward()
    plan = engine_of().plan(dtype="bf16", heads=(4, 2), dim=8, lengths=[9, 9], causal=True)
    assert plan.saved_bytes > 0 and plan.saved_bytes in packed


def test_autocast():
    inputs = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        o = attention(*inputs, causal=True)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert inputs[0].grad.dtype == torch.float32
    rounded = [t.to(torch.bfloat16) for t in inputs]
    assert relative_rms(o, batch_attention(*rounded, Terms(causal=True))[0]) <= 5e-3


def test_deterministic_algorithms_reach_the_problem():
    q, k, v = tensors()
    only = longspan.Options(forward_provider="require:cpu/tiled")
    torch.use_deterministic_algorithms(True)
    try:
        before = engine_of(options=only).counters()["plan_builds"]
        attention(q, k, v, options=only)
        assert engine_of(options=only).counters()["plan_builds"] > before
    finally:
        torch.use_deterministic_algorithms(False)


def test_gradient_that_is_not_dense():
    inputs = tensors()
    mine = torch.autograd.grad(attention(*inputs, causal=True).sum(), inputs)  # expanded ones
    want = batch_attention(*inputs, Terms(causal=True))[0]
    for one, other in zip(mine, torch.autograd.grad(want.sum(), inputs)):
        assert relative_rms(one, other) <= 2e-6


def test_tensors_that_are_not_dense():
    q, k, v = tensors()
    strided = q.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    assert torch.equal(attention(strided, k, v), attention(q, k, v))
    shared = k[:, :, :1].expand(-1, -1, 2, -1)
    assert torch.equal(attention(q, shared, v), attention(q, shared.contiguous(), v))


def test_fake_tensors_have_shapes():
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t.detach()) for t in tensors(torch.bfloat16)]
        o, lse = attention(*fakes, causal=True, return_lse=True)
    assert o.shape == (2, 9, 4, 8) and o.dtype == torch.bfloat16
    assert lse.shape == (2, 9, 4) and lse.dtype == torch.float32
