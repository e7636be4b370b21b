"""Float64 attention on the GPU, all elements, in blocks of query rows."""

import math

import peer  # noqa: F401  finds the harness
import torch
from problem import band

BLOCK_BYTES = 1 << 29  # of one block of scores


def hidden(lo, hi, rows, keys):
    """Boolean [rows, keys]: pairs outside of the band."""
    distance = keys[None, :] - rows[:, None]
    mask = torch.zeros_like(distance, dtype=torch.bool)
    if lo is not None:
        mask |= distance < lo
    if hi is not None:
        mask |= distance > hi
    return mask


def block(q, k, v, dout, scale, mask):
    """One block: q [group, rows, dim], k [keys, dim]. Returns o, dq, dk, dv of it."""
    scores = (q @ k.T).mul_(scale).masked_fill_(mask, -math.inf)
    p = torch.softmax(scores, dim=-1).nan_to_num_(0)  # a row that sees no key
    o = p @ v
    delta = (dout * o).sum(-1, keepdim=True)
    ds = (dout @ v.T).sub_(delta).mul_(p).mul_(scale)
    dk = torch.einsum("grk,grd->kd", ds, q)
    dv = torch.einsum("grk,grd->kd", p, dout)
    return o, ds @ k, dk, dv


def sequence(problem, q, k, v, dout, out):
    """Of one sequence and one key head: q [group, rows, dim]; adds to the views in `out`."""
    queries, keys = q.shape[1], k.shape[0]
    lo, hi = band(problem, queries, keys)
    step = max(16, BLOCK_BYTES // (8 * q.shape[0] * max(keys, 1)))
    scale = 1 / math.sqrt(problem.dim)
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        first = 0 if lo is None else max(0, begin + lo)
        last = keys if hi is None else min(keys, end + hi)
        if last <= first:
            continue
        mask = hidden(lo, hi, torch.arange(begin, end, device=q.device),
                      torch.arange(first, last, device=q.device))
        part = slice(first, last)
        o, dq, dk, dv = block(q[:, begin:end], k[part], v[part], dout[:, begin:end], scale, mask)
        out["o"][:, begin:end] = o
        out["dq"][:, begin:end] = dq
        out["dk"][part] += dk
        out["dv"][part] += dv


def reference(inputs):
    """o, dq, dk, dv as [tokens, heads, dim] in float64."""
    problem = inputs.problem
    group = problem.heads_q // problem.heads_kv
    q, k, v, dout = (t.double() for t in (inputs.q, inputs.k, inputs.v, inputs.dout))
    whole = {"o": torch.zeros_like(dout), "dq": torch.zeros_like(q), "dk": torch.zeros_like(k),
             "dv": torch.zeros_like(v)}
    q_row = k_row = 0
    for queries, keys in zip(problem.q_lengths, problem.k_lengths):
        rows, columns = slice(q_row, q_row + queries), slice(k_row, k_row + keys)
        for head in range(problem.heads_kv):
            heads = slice(head * group, (head + 1) * group)
            out = {name: whole[name][rows, heads].transpose(0, 1) for name in ("o", "dq")}
            out.update({name: whole[name][columns, head] for name in ("dk", "dv")})
            sequence(problem, q[rows, heads].transpose(0, 1), k[columns, head], v[columns, head],
                     dout[rows, heads].transpose(0, 1), out)
        q_row += queries
        k_row += keys
    return whole


def relative_rms(result, expected):
    """rms(error) / rms(expected); NaN where the result is not finite."""
    return ((result.double() - expected).norm() / expected.norm()).item()
