"""Calls without side operands, which take fewer steps, beside the same problem with them."""

import pytest
import torch

import longspan
from longspan.torch import attention, engine_of
from oracle import BARS

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def plan_of(dtype=torch.float32, **problem):
    given = {"heads": (4, 2), "dim": 8, "lengths": [9, 9], "causal": True} | problem
    return engine_of().plan(dtype=NAMES[dtype], **given)


def tensors(*rows, dtype=torch.float32, dim_v=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(*rows, 4, 8), (*rows, 2, 8), (*rows, 2, dim_v)]
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def with_gradients(inputs, dout=None, **call):
    """o and the gradients of all inputs."""
    o = attention(*inputs, **call)
    o = o[0] if isinstance(o, tuple) else o
    dout = torch.ones_like(o).cumsum(1) / 8 if dout is None else dout
    return [o, *torch.autograd.grad(o, inputs, dout)]


def check(mine, theirs):
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert torch.equal(one, other), f"result {number}"


@pytest.mark.parametrize("dtype", BARS)
@pytest.mark.parametrize("dim_v", [8, 24])
def test_results_are_those_of_the_longer_way(dtype, dim_v):
    inputs = tensors(2, 9, dtype=dtype, dim_v=dim_v)
    plan = plan_of(dtype, dim_v=dim_v)
    want = with_gradients(inputs, plan=plan, return_lse=True)
    check(with_gradients(inputs, plan=plan), want)
    check(with_gradients(inputs, causal=True), want)
    with torch.no_grad():
        assert torch.equal(attention(*inputs, plan=plan), want[0])


def test_packed_rows_with_an_empty_sequence():
    inputs = tensors(14)
    plan = plan_of(lengths=[5, 0, 9], layout="thd")
    want = with_gradients(inputs, plan=plan, layout="thd", return_lse=True)
    check(with_gradients(inputs, plan=plan), want)
    none = tensors(0)
    check(with_gradients(none, plan=plan_of(lengths=[0, 0], layout="thd")), none[:1] + none)


@pytest.mark.parametrize("layout", ["sbhd", "bhsd"])
def test_layouts(layout):
    order = {"sbhd": (1, 0, 2, 3), "bhsd": (0, 2, 1, 3)}[layout]
    inputs = tensors(2, 9)
    turned = [t.detach().permute(order).contiguous().requires_grad_() for t in inputs]
    dout = torch.randn(2, 9, 4, 8)
    mine = with_gradients(turned, dout.permute(order), layout=layout, causal=True)
    check([t.permute(order) for t in mine], with_gradients(inputs, dout, causal=True))


def test_tensors_that_are_not_dense():
    q, k, v = tensors(2, 9)
    plan = plan_of()
    o = attention(q, k, v, plan=plan)
    expanded = torch.autograd.grad(o.sum(), (q, k, v))  # of a single value
    check([o, *expanded], with_gradients((q, k, v), torch.ones_like(o), plan=plan))
    strided = q.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    shared = k[:, :, :1].expand(-1, -1, 2, -1)
    want = attention(q, shared.contiguous(), v, plan=plan)
    assert torch.equal(attention(strided, shared, v, plan=plan), want)


def test_calls_in_flight_keep_memory_of_their_own():
    plan = plan_of()
    batches = [tensors(2, 9, seed=seed) for seed in range(4)]
    results = [attention(*batch, plan=plan) for batch in batches]
    dout = torch.randn_like(results[0])
    for o, batch in zip(results, batches):
        check([o, *torch.autograd.grad(o, batch, dout)], with_gradients(batch, dout, plan=plan))


def test_backward_twice_and_no_second_derivative():
    inputs = tensors(2, 9)
    o = attention(*inputs, plan=plan_of())
    once = torch.autograd.grad(o.sum(), inputs, retain_graph=True)
    check(torch.autograd.grad(o.sum(), inputs, retain_graph=True), once)
    first, *_ = torch.autograd.grad(o.square().sum(), inputs, create_graph=True)
    with pytest.raises(longspan.Unsupported, match="second derivatives"):
        first.sum().backward()


def test_saved_tensor_hooks_see_what_is_kept():
    inputs, plan, packed = tensors(2, 9, dtype=torch.bfloat16), plan_of(torch.bfloat16), []

    def pack(tensor):
        packed.append((tensor.dtype, tensor.nbytes))
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        o = attention(*inputs, plan=plan)
    lse = 2 * 9 * 4 * 4
    assert plan.kept_bytes >= plan.saved_bytes + lse
    assert (torch.uint8, plan.kept_bytes) in packed
    dout = torch.randn_like(o)
    check([o, *torch.autograd.grad(o, inputs, dout)], with_gradients(inputs, dout, plan=plan))


MODES = {"fake": torch._subclasses.FakeTensorMode, "inference": torch.inference_mode,
         "no_grad": torch.no_grad}


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_first_call_do_not_stay(mode):
    inputs = tensors(2, 9)
    plain = [t.detach() for t in inputs]
    with MODES[mode]() as entered:
        plan = plan_of(window=(1 + list(MODES).index(mode), 0))  # a new one
        given = [entered.from_tensor(t) for t in plain] if mode == "fake" else plain
        assert attention(*given, plan=plan).shape == (2, 9, 4, 8)
    check(with_gradients(inputs, plan=plan), with_gradients(inputs, plan=plan, return_lse=True))


@pytest.mark.parametrize("enabled", [True, False])
def test_tensors_that_outlived_a_transform(enabled):
    inputs, kept = tensors(2, 9), []

    def square(x):
        kept.append(x)
        return x.square().sum()

    torch.func.grad(square)(inputs[0].detach())
    with torch.set_grad_enabled(enabled):
        want = attention(*inputs, plan=plan_of())
        assert torch.equal(attention(kept[0], *inputs[1:], plan=plan_of()), want)
        o, _ = attention(kept[0], *inputs[1:], plan=plan_of(), return_lse=True)
        assert torch.equal(o, want)


def test_autocast_is_heeded():
    inputs = tensors(2, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(*inputs, plan=plan_of(torch.bfloat16)).dtype == torch.bfloat16


def test_what_is_wrong_names_itself():
    q, k, v = tensors(2, 9)
    plan = plan_of()
    with pytest.raises(longspan.InvalidArgument, match="q is .2 x 10, 4, 8."):
        attention(torch.zeros(2, 10, 4, 8), k, v, plan=plan)
    with pytest.raises(longspan.InvalidArgument, match="q has 3 extents"):
        attention(q[0], k, v, plan=plan)
    with pytest.raises(longspan.InvalidArgument, match="v"):
        attention(q, k, v.double(), plan=plan)
    ahead = engine_of(options=longspan.Options(backward="none")).plan(plan.problem)
    with pytest.raises(longspan.Unsupported, match="forward alone"):
        attention(q, k, v, plan=ahead)
