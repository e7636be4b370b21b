"""Attention with every term as its definition reads, in Python's float64, from an output file."""

import math
import struct

LETTERS = {"F64": "d", "F32": "f", "F16": "e"}


def values(tensor):
    """All elements, in memory order."""
    dtype, _, content = tensor
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(content) // 2}H", content)
        wide = struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves))
        return list(struct.unpack(f"<{len(halves)}f", wide))
    size = struct.calcsize(LETTERS[dtype])
    return list(struct.unpack(f"<{len(content) // size}{LETTERS[dtype]}", content))


def philox4x32(counter, key):
    """Philox4x32-10 of Salmon et al. (SC 2011)."""
    c, k = list(counter), list(key)
    mask = 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & mask,
            (first >> 32) ^ c[3] ^ k[1],
            first & mask,
        ]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def keeps(probability, seed, sequence, head, q, k):
    threshold = math.ceil(math.ldexp(probability, 32))
    return philox4x32((sequence, head, q, k), (seed & 0xFFFFFFFF, seed >> 32))[0] >= threshold


def fields(text):
    return dict(word.split("=", 1) for word in text.split())


def numbers(text):
    return [int(part) for part in text.split(",")]


class Definition:
    """Results as flat lists in the layout of the file, which must be thd without padding."""

    def __init__(self, tensors, metadata):
        self.tensors = tensors
        self.keys = fields(metadata["problem"])
        self.heads, self.heads_kv = numbers(self.keys["heads"].replace("/", ","))
        self.dim = int(self.keys["dim"])
        self.dim_v = int(self.keys.get("dim_v", self.dim))
        self.lengths = numbers(self.keys["lengths"])
        self.kv_lengths = numbers(self.keys.get("kv_lengths", self.keys["lengths"]))
        for name in ("q", "k", "v", "dout"):
            setattr(self, name, values(tensors[name]))
        self.sink = values(tensors["sink"]) if "sink" in tensors else None
        if self.keys.get("sink") == "off_by_one":
            self.sink = [0.0] * self.heads
        self.slopes = values(tensors["alibi_slopes"]) if "alibi_slopes" in tensors else None
        self.bias = values(tensors["bias"]) if "bias" in tensors else None
        self.out = {
            "o": [0.0] * (sum(self.lengths) * self.heads * self.dim_v),
            "lse": [-math.inf] * (sum(self.lengths) * self.heads),
            "max_logit": [-math.inf] * self.heads,
            "dq": [0.0] * len(self.q),
            "dk": [0.0] * len(self.k),
            "dv": [0.0] * len(self.v),
            "dsink": [0.0] * self.heads,
            "dbias": [0.0] * len(self.bias or []),
        }

    def run(self):
        q_row = k_row = 0
        for sequence, (q_length, k_length) in enumerate(zip(self.lengths, self.kv_lengths)):
            for q in range(q_length):
                for head in range(self.heads):
                    self.row(sequence, head, q, q_row + q, k_row)
            q_row += q_length
            k_row += k_length
        return self.out

    def shift(self, sequence):
        bottom_right = self.keys.get("align") == "bottom_right"
        return self.kv_lengths[sequence] - self.lengths[sequence] if bottom_right else 0

    def visible(self, sequence, q, k):
        if "prefix" in self.keys and k < numbers(self.keys["prefix"])[sequence]:
            return True
        diagonal = q + self.shift(sequence)
        left, right = numbers(self.keys.get("window", "-1,-1"))
        chunk = int(self.keys.get("chunk", 0))
        if self.keys["mask"] == "causal" and k > diagonal:
            return False
        if left >= 0 and k < diagonal - left or right >= 0 and k > diagonal + right:
            return False
        return chunk == 0 or diagonal // chunk == k // chunk

    def bias_at(self, sequence, head, q, k):
        batch, heads, rows, columns = self.tensors["bias"][1]
        block = (sequence if batch > 1 else 0) * heads + (head if heads > 1 else 0)
        return (block * rows + (q if rows > 1 else 0)) * columns + k

    def score(self, sequence, head, q, k, dot):
        """The score and its derivative by scale q.k."""
        score, slope = float(self.keys.get("scale", 1 / math.sqrt(self.dim))) * dot, 1.0
        if "softcap" in self.keys:
            cap = float(self.keys["softcap"])
            bounded = math.tanh(score / cap)
            score, slope = cap * bounded, 1 - bounded * bounded
        if self.bias is not None:
            score += self.bias[self.bias_at(sequence, head, q, k)]
        if self.slopes is not None:
            score -= self.slopes[head] * abs(q + self.shift(sequence) - k)
        return score, slope

    def row(self, sequence, head, q, q_row, k_row):
        key_head = head // (self.heads // self.heads_kv)
        q_at = (q_row * self.heads + head) * self.dim
        query = self.q[q_at : q_at + self.dim]
        pairs = []
        for k in range(self.kv_lengths[sequence]):
            if self.visible(sequence, q, k):
                at = ((k_row + k) * self.heads_kv + key_head) * self.dim
                dot = sum(a * b for a, b in zip(query, self.k[at : at + self.dim]))
                pairs.append((k, *self.score(sequence, head, q, k, dot)))
        logits = [score for _, score, _ in pairs]
        self.out["max_logit"][head] = max([self.out["max_logit"][head], *logits])
        with_sink = logits + ([self.sink[head]] if self.sink is not None else [])
        if not with_sink:
            return
        top = max(with_sink)
        lse = top + math.log(math.fsum(math.exp(logit - top) for logit in with_sink))
        self.out["lse"][q_row * self.heads + head] = lse
        self.gradients(sequence, head, q, q_row, k_row, pairs, lse)

    def gradients(self, sequence, head, q, q_row, k_row, pairs, lse):
        key_head = head // (self.heads // self.heads_kv)
        scale = float(self.keys.get("scale", 1 / math.sqrt(self.dim)))
        dropped = float(self.keys.get("dropout", 0))
        seed = int(self.keys.get("dropout_seed", 0))
        q_at = (q_row * self.heads + head) * self.dim
        o_at = (q_row * self.heads + head) * self.dim_v
        dout = self.dout[o_at : o_at + self.dim_v]
        terms, delta = [], 0.0
        for k, score, slope in pairs:
            p = math.exp(score - lse)
            keep = 1 / (1 - dropped) if keeps(dropped, seed, sequence, head, q, k) else 0.0
            at = ((k_row + k) * self.heads_kv + key_head) * self.dim_v
            value = self.v[at : at + self.dim_v]
            dp = keep * sum(a * b for a, b in zip(dout, value))
            for i in range(self.dim_v):
                self.out["o"][o_at + i] += p * keep * value[i]
                self.out["dv"][at + i] += p * keep * dout[i]
            delta += p * dp
            terms.append((k, p, dp, slope))
        for k, p, dp, slope in terms:
            ds = p * (dp - delta)
            if self.bias is not None:
                self.out["dbias"][self.bias_at(sequence, head, q, k)] += ds
            at = ((k_row + k) * self.heads_kv + key_head) * self.dim
            for i in range(self.dim):
                self.out["dq"][q_at + i] += scale * slope * ds * self.k[at + i]
                self.out["dk"][at + i] += scale * slope * ds * self.q[q_at + i]
        if self.sink is not None:
            self.out["dsink"][head] -= math.exp(self.sink[head] - lse) * delta


def relative_rms(result, expected, floor):
    """rms(error) / rms(expected), where that is not tiny beside `floor`. -inf must stand at equal
    places."""
    pairs = [(a, b) for a, b in zip(result, expected) if a != b or math.isfinite(b)]
    error = math.fsum((a - b) ** 2 for a, b in pairs)
    scale = math.fsum(b * b for _, b in pairs)
    if scale < 1e-12 * floor * floor * len(pairs):
        scale = floor * floor * len(pairs)
    return 0.0 if error == 0 else math.sqrt(error / scale)
