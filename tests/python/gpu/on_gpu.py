"""Tensors on the GPU and float64 attention there, with the bars of GPUs."""

import os

import torch

import longspan
from oracle import Terms, batch_attention, gradients, relative_rms

# LONGSPAN_TEST_DEVICE=cpu tries the tests themselves where there is no GPU.
DEVICE = torch.device(os.environ.get("LONGSPAN_TEST_DEVICE", "cuda:0"))
BARS = {torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 4e-3}
LSE_BAR = 1e-4  # of |error| / max(1, |lse|)


def tensors(*shapes, dtype=torch.float32, seed=0):
    """Normal values that need gradients, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.to(DEVICE, dtype).requires_grad_() for tensor in made]


def qkv(batch=2, sq=130, heads=(4, 2), dim=64, *, sk=None, dim_v=None, dtype=torch.float32, seed=0):
    sk, dim_v = sk or sq, dim_v or dim
    shapes = (batch, sq, heads[0], dim), (batch, sk, heads[1], dim), (batch, sk, heads[1], dim_v)
    return tensors(*shapes, dtype=dtype, seed=seed)


def truth(q, k, v, terms: Terms = Terms()):
    """o, lse and the largest logits of each head in float64."""
    with torch.device(q.device):
        return batch_attention(q, k, v, terms)


def random_like(tensor: torch.Tensor, seed=9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(
        tensor.device, tensor.dtype
    )


def judge(got, want, inputs, what="") -> None:
    """o and the gradients of all inputs, by the bar of the first input's type."""
    bar = BARS[inputs[0].dtype]
    dout = random_like(got)
    assert not got.isnan().any(), what
    assert relative_rms(got, want) <= bar, f"o: {relative_rms(got, want)} > {bar}; {what}"
    mine, theirs = gradients(got, dout, inputs), gradients(want, dout, inputs)
    for number, (one, other) in enumerate(zip(mine, theirs)):
        error = relative_rms(one, other)
        assert one.dtype == inputs[number].dtype and not one.isnan().any(), what
        assert error <= bar, f"gradient of input {number}: {error} > {bar}; {what}"


def judge_lse(got, want) -> None:
    hidden = want.isneginf()
    assert torch.equal(got.isneginf(), hidden)
    got, want = got.detach().double()[~hidden], want.detach()[~hidden]
    assert float(((got - want).abs() / want.abs().clamp(min=1)).max()) <= LSE_BAR


def provider(name: str) -> longspan.Options:
    """Both directions by this provider and no other."""
    return longspan.Options(forward_provider=f"require:{name}", backward_provider=f"require:{name}")
