"""Attention in float64, written out, and its gradients: the truth that results are judged by."""

import dataclasses
import math

import numpy as np

# Relative RMS of o and gradients on the CPU, and largest error of lse over max(1, |lse|), per type.
BARS = {"float64": (1e-12, 1e-12), "float32": (2e-6, 1e-5), "float16": (3e-4, 1e-5),
        "bfloat16": (2.5e-3, 1e-5)}
GPU_BARS = {"float32": (2e-6, 1e-4), "float16": (6e-4, 1e-4), "bfloat16": (4e-3, 1e-4)}


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
    words = np.full(head.shape, sequence), head, q, k
    counter = [x.astype(np.uint64) for x in words]
    low, high = (np.uint64(word) for word in seed)
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a = np.uint64(0xD2511F53) * counter[0]
        b = np.uint64(0xCD9E8D57) * counter[2]
        counter = [(b >> np.uint64(32)) ^ counter[1] ^ low, b & mask,
                   (a >> np.uint64(32)) ^ counter[3] ^ high, a & mask]
        low = (low + np.uint64(0x9E3779B9)) & mask
        high = (high + np.uint64(0xBB67AE85)) & mask
    return counter[0] >= np.uint64(math.ceil(probability * 2**32))


@dataclasses.dataclass
class Sides:
    """What only some problems have; of one sequence."""

    sinks: np.ndarray | None = None  # [heads]
    slopes: np.ndarray | None = None  # [heads]
    bias: np.ndarray | None = None  # [heads or 1, sq or 1, sk]
    keep: np.ndarray | None = None  # [heads, sq, sk]
    prefix: int = 0


def _scores(q, k, sides: Sides, terms: Terms):
    """[heads, sq, sk] and the derivative by q.k."""
    scale = q.shape[-1] ** -0.5 if terms.scale is None else terms.scale
    s = scale * np.einsum("qhd,khd->hqk", q, k)
    slope = np.full_like(s, scale)
    if terms.softcap:
        bent = np.tanh(s / terms.softcap)
        s, slope = terms.softcap * bent, slope * (1 - bent**2)
    sq, sk = s.shape[1:]
    if sides.slopes is not None:
        distance = np.abs(np.arange(sq)[:, None] + shift_of(sq, sk, terms) - np.arange(sk))
        s = s - sides.slopes[:, None, None] * distance
    if sides.bias is not None:
        s = s + sides.bias
    return s, slope


def _softmax(s, seen, sinks):
    """Probabilities [heads, sq, sk], lse [heads, sq], the largest score of each head."""
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, initial=-np.inf)
    largest = top.max(-1, initial=-np.inf)
    logits = np.full(top.shape, -np.inf) if sinks is None else np.broadcast_to(
        sinks[:, None], top.shape)
    top = np.maximum(top, logits)
    base = np.where(np.isneginf(top), 0, top)
    total = np.exp(s - base[..., None]).sum(-1) + np.exp(logits - base)
    with np.errstate(divide="ignore"):
        lse = base + np.log(total)
    return np.exp(s - np.where(np.isneginf(lse), 0, lse)[..., None]), lse, largest


def _sequence(q, k, v, dout, sides: Sides, terms: Terms) -> dict:
    """[sq, heads, dim], [sk, kv heads, dim]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s, slope = _scores(q, k, sides, terms)
    seen = visible(q.shape[0], k.shape[0], terms, sides.prefix)
    p, lse, largest = _softmax(s, seen, sides.sinks)
    weight = 1 if sides.keep is None else sides.keep / (1 - terms.dropout)
    o = np.einsum("hqk,khd->qhd", p * weight, v)
    dp = np.einsum("qhd,khd->hqk", dout, v) * weight
    delta = (dout * o).sum(-1).T
    ds = p * (dp - delta[..., None])
    result = {"o": o, "lse": lse.T, "max_logit": largest}
    result["dq"] = np.einsum("hqk,khd->qhd", ds * slope, k)
    for name, x in (("dk", np.einsum("hqk,qhd->khd", ds * slope, q)),
                    ("dv", np.einsum("hqk,qhd->khd", p * weight, dout))):
        result[name] = x.reshape(x.shape[0], x.shape[1] // group, group, x.shape[2]).sum(2)
    if sides.sinks is not None:
        away = np.exp(sides.sinks[:, None] - np.where(np.isneginf(lse), np.inf, lse))
        result["dsinks"] = -(away * delta).sum(-1)
    if sides.bias is not None:
        summed = tuple(i for i in (0, 1) if sides.bias.shape[i] == 1 and ds.shape[i] != 1)
        result["dbias"] = ds.sum(summed, keepdims=True)
    return result


def attention(q, k, v, dout, spans, terms=Terms(), sinks=None, bias=None, slopes=None, seed=None):
    """All of it, on packed rows.

    Args:
        q, k, v, dout: [rows, heads, dim].
        spans: per sequence ((first query row, queries), (first key row, keys)).

    Returns:
        A dictionary of float64 arrays: o, lse, max_logit, dq, dk, dv, dsinks, dbias.
    """
    q, k, v, dout = (np.asarray(x, np.float64) for x in (q, k, v, dout))
    sinks, bias, slopes = (
        None if x is None else np.asarray(x, np.float64) for x in (sinks, bias, slopes)
    )
    heads = q.shape[1]
    want = {"o": np.zeros((*q.shape[:2], v.shape[-1])), "lse": np.full(q.shape[:2], -np.inf),
            "max_logit": np.full(heads, -np.inf), "dsinks": np.zeros(heads),
            "dbias": None if bias is None else np.zeros_like(bias)}
    want |= {"d" + name: np.zeros_like(x) for name, x in (("q", q), ("k", k), ("v", v))}
    for i, ((q_begin, sq), (k_begin, sk)) in enumerate(spans):
        rows, keys = slice(q_begin, q_begin + sq), slice(k_begin, k_begin + sk)
        sides = Sides(sinks, slopes, prefix=terms.prefix[i] if terms.prefix else 0)
        entry = None if bias is None else (i if bias.shape[0] > 1 else 0)
        if bias is not None:
            sides.bias = bias[entry, :, :sq, :sk]
        if terms.dropout:
            sides.keep = kept(i, heads, sq, sk, terms.dropout, seed)
        one = _sequence(q[rows], k[keys], v[keys], dout[rows], sides, terms)
        for name in ("o", "lse", "dq"):
            want[name][rows] = one[name]
        for name in ("dk", "dv"):
            want[name][keys] = one[name]
        want["max_logit"] = np.maximum(want["max_logit"], one["max_logit"])
        want["dsinks"] += one.get("dsinks", 0)
        if bias is not None:
            want["dbias"][entry, :, :sq, :sk] += one["dbias"]
    return want


def relative_rms(got, want) -> float:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert not np.isnan(got).any()
    norm = np.linalg.norm(want)
    error = np.linalg.norm(got - want)
    return float(error / norm) if norm > 1e-6 else float(error)


def check(got: dict, want: dict, dtype: str, bars: dict = BARS) -> None:
    """Every result in ``got`` against the oracle's of the same name."""
    bar, lse_bar = bars[dtype]
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
