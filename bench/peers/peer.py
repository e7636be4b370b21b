"""What every adapter of a peer offers, and what it may refuse."""

import dataclasses
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "harness"))

from problem import Problem  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class Refused(Exception):
    """The peer cannot compute this problem; the message names what it lacks."""


@dataclasses.dataclass
class Inputs:
    """Whole tensors [tokens, heads, dim], the same on every rank."""

    problem: Problem
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor

    def batched(self, tensor):
        """[batch, length, heads, dim] of a tensor whose sequences are of one length."""
        return tensor.unflatten(0, (len(self.problem.q_lengths), -1))


def need(condition, reason):
    if not condition:
        raise Refused(reason)


def need_plain(problem, *, window=False, packed=False):
    """Refuses what hardly any peer computes, and windows and unequal lengths unless allowed."""
    need(not problem.other, f"no {', '.join(problem.other)}")
    need(problem.q_lengths == problem.k_lengths, "queries and keys must be of equal lengths")
    need(problem.dtype in DTYPES, f"no dtype {problem.dtype}")
    need(packed or len(set(problem.q_lengths)) == 1, "all sequences must be of one length")
    has_window = problem.window != (-1, -1)
    need(window or not has_window, "no window")
    need(not has_window or problem.causal, "a window needs a causal mask here")


def left_window(problem):
    """Keys that a query sees to its left, None where that is unbounded."""
    return None if problem.window[0] < 0 else problem.window[0]


def draw(problem, seed=0):
    """N(0, 1) rounded to the dtype."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype = DTYPES[problem.dtype]
    q_rows, k_rows = sum(problem.q_lengths), sum(problem.k_lengths)

    def random(rows, heads, dim):
        values = torch.randn(rows, heads, dim, device="cuda", generator=generator)
        return values.to(dtype)

    return Inputs(
        problem,
        q=random(q_rows, problem.heads_q, problem.dim),
        k=random(k_rows, problem.heads_kv, problem.dim),
        v=random(k_rows, problem.heads_kv, problem.dim_v),
        dout=random(q_rows, problem.heads_q, problem.dim_v),
    )


class Peer:
    """forward() keeps `o`, backward() keeps `grads` (dq, dk, dv), both as the peer lays them out.

    `tokens` are the rows of the whole tensors that this rank owns; None: all.
    """

    o = None
    grads = None
    tokens = None
    can_record = True

    def forward(self):
        raise NotImplementedError

    def backward(self):
        raise NotImplementedError

    def rows(self, tensor):
        """[tokens of this rank, heads, dim] of a tensor as the peer lays it out."""
        return tensor.flatten(0, 1)

    def results(self):
        named = {"o": self.o}
        if self.grads is not None:
            named.update(zip(("dq", "dk", "dv"), self.grads))
        return {name: self.rows(tensor.detach()) for name, tensor in named.items()}


class AutogradPeer(Peer):
    """A peer whose backward is torch's: `attention(q, k, v)` of leaf tensors."""

    def __init__(self, attention, q, k, v, dout):
        self.attention = attention
        self.inputs = tuple(t.detach().requires_grad_() for t in (q, k, v))
        self.dout = dout

    def forward(self):
        self.o = self.attention(*self.inputs)  # with grad, so that LSE is written as by all arms

    def backward(self):
        self.grads = torch.autograd.grad(self.o, self.inputs, self.dout)
