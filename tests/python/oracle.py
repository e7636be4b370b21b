"""Attention in float64, written out: the truth that the front ends are judged by."""

import dataclasses

import torch

# Of the relative RMS of results against float64, per type.
BARS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}


@dataclasses.dataclass
class Terms:
    """Options of one sequence; as the arguments of attention()."""

    causal: bool = False
    bottom_right: bool = False
    window: tuple[int, int] = (-1, -1)
    prefix: int = 0
    chunk: int = 0
    scale: float | None = None
    softcap: float = 0.0
    slopes: torch.Tensor | None = None  # [heads]
    bias: torch.Tensor | None = None  # [heads or 1, sq or 1, sk]
    sinks: torch.Tensor | None = None  # [heads]


def relative_rms(got: torch.Tensor, want: torch.Tensor) -> float:
    got, want = got.detach().double(), want.detach().double()
    if want.numel() == 0:
        assert got.shape == want.shape
        return 0.0
    norm = want.norm()
    return float((got - want).norm() / norm) if norm > 0 else float((got - want).norm())


def visible(sq: int, sk: int, terms: Terms) -> torch.Tensor:
    """[sq, sk]"""
    shift = sk - sq if terms.bottom_right else 0
    q = torch.arange(sq)[:, None] + shift
    k = torch.arange(sk)[None, :]
    seen = torch.ones(sq, sk, dtype=torch.bool)
    if terms.causal:
        seen &= k <= q
    left, right = terms.window
    if left >= 0:
        seen &= k >= q - left
    if right >= 0:
        seen &= k <= q + right
    if terms.chunk:
        seen &= q // terms.chunk == k // terms.chunk
    return seen | (k < terms.prefix)


def sequence_attention(q, k, v, terms: Terms = Terms()):
    """One sequence: q [sq, heads, dim], k and v [sk, kv heads, dim]. Returns o [sq, heads, dim_v],
    lse [sq, heads] and the largest logit [heads], in float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = q.shape[-1] ** -0.5 if terms.scale is None else terms.scale
    s = scale * torch.einsum("qhd,khd->hqk", q, k)
    if terms.softcap:
        s = terms.softcap * torch.tanh(s / terms.softcap)
    sq, sk = s.shape[1:]
    if terms.slopes is not None:
        shift = sk - sq if terms.bottom_right else 0
        distance = (torch.arange(sq)[:, None] + shift - torch.arange(sk)[None, :]).abs()
        s = s - terms.slopes.double()[:, None, None] * distance
    if terms.bias is not None:
        s = s + terms.bias.double()
    s = s.masked_fill(~visible(sq, sk, terms), float("-inf"))
    logits = s
    if terms.sinks is not None:
        logits = torch.cat([s, terms.sinks.double()[:, None, None].expand(-1, sq, 1)], -1)
    empty = s.new_full((s.shape[0], sq), -torch.inf)
    lse = torch.logsumexp(logits, -1) if logits.shape[-1] else empty
    alive = lse > -torch.inf
    p = torch.exp(s - lse.masked_fill(~alive, 0)[..., None])
    p = p.masked_fill(~alive[..., None], 0)
    o = torch.einsum("hqk,khd->qhd", p, v)
    largest = s.flatten(1).max(-1).values if sk and sq else s.new_full((s.shape[0],), -torch.inf)
    return o, lse.transpose(0, 1), largest


def batch_attention(q, k, v, terms: Terms = Terms()):
    """[batch, seq, heads, dim]; terms.bias [batch or 1, heads or 1, sq, sk]."""
    results = []
    for b in range(q.shape[0]):
        bias = None if terms.bias is None else terms.bias[b if terms.bias.shape[0] > 1 else 0]
        results.append(sequence_attention(q[b], k[b], v[b], dataclasses.replace(terms, bias=bias)))
    o, lse, largest = zip(*results)
    return torch.stack(o), torch.stack(lse), torch.stack(largest).max(0).values


def gradients(o: torch.Tensor, dout: torch.Tensor, inputs) -> list[torch.Tensor]:
    return list(torch.autograd.grad(o, inputs, dout.to(o.dtype), retain_graph=True))
