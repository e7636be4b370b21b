"""A small GPT whose attention may run over ranks: RoPE, fewer key heads than query heads, and a
sliding window in every second layer."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

import longspan
from longspan.torch import Plan, attention, engine_of


@dataclasses.dataclass(frozen=True)
class Shape:
    vocabulary: int = 256  # bytes
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    window: int = 64  # keys before a query's own, in every second layer

    @property
    def width(self) -> int:
        return self.heads * self.head_dim


def make_plans(shape: Shape, batch: int, sequence: int, dtype: str, group, device) -> list[Plan]:
    """A plan for each layer. All cut sequences alike (zigzag), so layers exchange nothing else."""
    engine = engine_of(group, device, longspan.Options(partition="zigzag"))
    windows = [(shape.window, 0) if layer % 2 == 0 else None for layer in range(shape.layers)]
    return [
        engine.plan(
            dtype=dtype, heads=(shape.heads, shape.kv_heads), dim=shape.head_dim,
            lengths=[sequence] * batch, causal=True, window=window,
        )
        for window in windows
    ]


def rotations(positions: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [rows, 1, dim / 2] of RoPE at the positions that this rank holds."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device=positions.device) / dim)
    angles = positions[:, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, shape: Shape, plan: Plan):
        super().__init__()
        self.shape, self.plan = shape, plan
        kv_width = shape.kv_heads * shape.head_dim
        self.split = [shape.width, kv_width, kv_width]
        self.qkv = nn.Linear(shape.width, sum(self.split), bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)
        self.before_attention = nn.RMSNorm(shape.width)
        self.before_mlp = nn.RMSNorm(shape.width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before_attention(x)).split(self.split, -1)
        q, k, v = (part.unflatten(-1, (-1, self.shape.head_dim)) for part in parts)
        o = attention(rotate(q, cos, sin), rotate(k, cos, sin), v, plan=self.plan)
        x = x + self.out(o.flatten(-2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class GPT(nn.Module):
    """tokens [batch, rows] of this rank to logits [batch, rows, vocabulary]."""

    def __init__(self, shape: Shape, plans: list[Plan]):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape, plan) for plan in plans)
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.positions = plans[0].positions().view(plans[0].local_shape())[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        cos, sin = rotations(self.positions.to(tokens.device), self.shape.head_dim)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))
