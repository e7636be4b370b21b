"""Attention in float64, written out, and its gradients: the truth that results are judged by."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

# Relative RMS of o and gradients on the CPU, and largest error of lse over max(1, |lse|), per type.
BARS = {"float64": (1e-12, 1e-12), "float32": (2e-6, 1e-5), "float16": (3e-4, 1e-5),
        "bfloat16": (2.5e-3, 1e-5)}


@dataclasses.dataclass(frozen=True)
class Terms:
    """As the arguments of attention()."""

    causal: bool = False
    align: str | None = None
    window: tuple[int, int] | None = None
    prefix: tuple[int, ...] | None = None
    chunk: int = 0
    scale: float | None = None
    softcap: float = 0.0
    dropout: float = 0.0

    def arguments(self) -> dict:
        return {key: value for key, value in vars(self).items() if value}


def visible(sq: int, sk: int, terms: Terms, prefix: int) -> np.ndarray:
    q = np.arange(sq)[:, None] + shift_of(sq, sk, terms)
    k = np.arange(sk)[None, :]
    seen = k <= q if terms.causal else np.ones((sq, sk), bool)
    if terms.window is not None:
        left, right = terms.window
        seen = seen & ((k >= q - left) | (left < 0)) & ((k <= q + right) | (right < 0))
    if terms.chunk:
        seen = seen & (q // terms.chunk == k // terms.chunk)
    return seen | (k < prefix)


def shift_of(sq: int, sk: int, terms: Terms) -> int:
    return sk - sq if terms.align == "bottom_right" else 0


def kept(sequence: int, heads: int, sq: int, sk: int, probability: float, seed) -> np.ndarray:
    """[heads, sq, sk]: Philox4x32-10 of (sequence, head, q, k) against probability."""
    head, q, k = np.meshgrid(np.arange(heads), np.arange(sq), np.arange(sk), indexing="ij")
    counter = [np.full(head.shape, sequence, np.uint64), *(x.astype(np.uint64) for x in (head, q, k))]
    low, high = (np.uint64(word) for word in seed)
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a = np.uint64(0xD2511F53) * counter[0]
        b = np.uint64(0xCD9E8D57) * counter[2]
        counter = [(b >> np.uint64(32)) ^ counter[1] ^ low, b & mask,
                   (a >> np.uint64(32)) ^ counter[3] ^ high, a & mask]
        low = (low + np.uint64(0x9E3779B9)) & mask
        high = (high + np.uint64(0xBB67AE85)) & mask
    return counter[0] >= np.uint64(int(probability * 2**32))


def _sequence(q, k, v, sinks, slopes, bias, keep, terms: Terms, prefix: int):
    """[sq, heads, dim], [sk, kv heads, dim]; bias [heads or 1, sq or 1, sk]."""
    group = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, group, 1), jnp.repeat(v, group, 1)
    scale = q.shape[-1] ** -0.5 if terms.scale is None else terms.scale
    s = scale * jnp.einsum("qhd,khd->hqk", q, k)
    if terms.softcap:
        s = terms.softcap * jnp.tanh(s / terms.softcap)
    sq, sk = s.shape[1:]
    if slopes is not None:
        distance = np.abs(np.arange(sq)[:, None] + shift_of(sq, sk, terms) - np.arange(sk))
        s = s - slopes[:, None, None] * distance
    if bias is not None:
        s = s + bias
    seen = visible(sq, sk, terms, prefix)
    top = jnp.max(jnp.where(seen, s, -jnp.inf), -1, initial=-jnp.inf)  # [heads, sq]
    largest = jnp.max(top, -1, initial=-jnp.inf)
    if sinks is not None:
        top = jnp.maximum(top, sinks[:, None])
    base = jax.lax.stop_gradient(jnp.where(jnp.isneginf(top), 0, top))
    p = jnp.where(seen, jnp.exp(jnp.where(seen, s - base[..., None], 0)), 0)
    total = p.sum(-1)
    if sinks is not None:
        total = total + jnp.exp(sinks[:, None] - base)
    lse = jnp.where(total > 0, base + jnp.log(jnp.where(total > 0, total, 1)), -jnp.inf)
    p = p / jnp.where(total > 0, total, 1)[..., None]
    if keep is not None:
        p = jnp.where(keep, p / (1 - terms.dropout), 0)
    return jnp.einsum("hqk,khd->qhd", p, v), lse.T, largest


def _forward(q, k, v, sinks, bias, slopes, spans, terms: Terms, seed):
    o = jnp.zeros((*q.shape[:2], v.shape[-1]))
    lse = jnp.full(q.shape[:2], -jnp.inf)
    largest = []
    for i, ((q_begin, sq), (k_begin, sk)) in enumerate(spans):
        rows, keys = slice(q_begin, q_begin + sq), slice(k_begin, k_begin + sk)
        part = None
        if bias is not None:
            part = bias[i if bias.shape[0] > 1 else 0, :, :sq, :sk]
        keep = kept(i, q.shape[1], sq, sk, terms.dropout, seed) if terms.dropout else None
        prefix = terms.prefix[i] if terms.prefix else 0
        one = _sequence(q[rows], k[keys], v[keys], sinks, slopes, part, keep, terms, prefix)
        o, lse = o.at[rows].set(one[0]), lse.at[rows].set(one[1])
        largest.append(one[2])
    return o, (lse, jnp.stack(largest).max(0))


def attention(q, k, v, dout, spans, terms=Terms(), sinks=None, bias=None, slopes=None, seed=None):
    """All of it, on packed rows.

    Args:
        q, k, v, dout: [rows, heads, dim].
        spans: per sequence ((first query row, queries), (first key row, keys)).

    Returns:
        A dictionary of float64 arrays: o, lse, max_logit, dq, dk, dv, dsinks, dbias.
    """
    with jax.enable_x64(True):
        def wide(x):
            return None if x is None else jnp.asarray(np.asarray(x, np.float64))

        inputs = [wide(x) for x in (q, k, v, sinks, bias)]
        o, back, (lse, largest) = jax.vjp(
            lambda *x: _forward(*x, wide(slopes), spans, terms, seed), *inputs, has_aux=True
        )
        dq, dk, dv, dsinks, dbias = back(wide(dout))
        results = {"o": o, "lse": lse, "max_logit": largest, "dq": dq, "dk": dk, "dv": dv,
                   "dsinks": dsinks, "dbias": dbias}
        return {name: None if x is None else np.asarray(x) for name, x in results.items()}


def relative_rms(got, want) -> float:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert not np.isnan(got).any()
    norm = np.linalg.norm(want)
    error = np.linalg.norm(got - want)
    return float(error / norm) if norm > 1e-6 else float(error)


def check(got: dict, want: dict, dtype: str) -> None:
    """Every result in ``got`` against the oracle's of the same name."""
    bar, lse_bar = BARS[dtype]
    for name, x in got.items():
        if name in ("lse", "max_logit"):
            x = np.asarray(x, np.float64)
            hidden = np.isneginf(want[name])
            assert (np.isneginf(x) == hidden).all(), name
            error = np.abs(np.where(hidden, 0, x) - np.where(hidden, 0, want[name]))
            worst = (error / np.maximum(1, np.abs(np.where(hidden, 0, want[name])))).max(initial=0)
            assert worst <= lse_bar, (name, worst)
        else:
            assert relative_rms(x, want[name]) <= bar, (name, relative_rms(x, want[name]))
