"""torch.compile with sizes and values that change: constants of a graph, except seeds."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from longspan.torch import attention


def tensors(seq=12):
    generator = torch.Generator().manual_seed(seq)
    return [torch.randn(2, seq, heads, 16, generator=generator) for heads in (4, 2)]


def compiled(function, dynamic):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, backend=counter, fullgraph=True, dynamic=dynamic), counter


@pytest.mark.parametrize("dynamic", [None, True])
def test_each_size_is_right(dynamic):
    run = lambda q, k: attention(q, k, k, causal=True)  # noqa: E731
    graph, _ = compiled(run, dynamic)
    for seq in (12, 13, 14, 13):
        q, k = tensors(seq)
        q.requires_grad_()
        mine, plain = graph(q, k), run(q, k)
        assert torch.equal(mine, plain)
        dout = torch.randn(plain.shape)
        assert torch.equal(*(torch.autograd.grad(o, q, dout)[0] for o in (mine, plain)))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("name", "values"),
    [("scale", (0.5, 0.6, 0.7)), ("softcap", (5.0, 6.0, 7.0)), ("window", (3, 4, 5)),
     ("chunk", (3, 4, 5))],
)
def test_each_value_is_right(name, values, dynamic):
    run = lambda q, k, value: attention(q, k, k, **{name: value})  # noqa: E731
    graph, _ = compiled(run, dynamic)
    for value in values:
        assert torch.equal(graph(*tensors(), value), run(*tensors(), value))


def test_seeds_of_dropout_do_not_compile_again():
    run = lambda q, k, step: attention(q, k, k, dropout=0.5, dropout_rng=(step, 3))  # noqa: E731
    graph, counter = compiled(run, None)
    for step in range(1, 12):
        assert torch.equal(graph(*tensors(), step), run(*tensors(), step))
    assert counter.frame_count <= 2  # the second graph takes any step


def test_a_seed_is_drawn_in_every_call():
    graph, counter = compiled(lambda q, k: attention(q, k, k, dropout=0.5), None)
    assert not torch.equal(graph(*tensors()), graph(*tensors()))
    assert counter.frame_count == 1
