"""What four ranks do together with models; test_ranks.py starts them by torchrun. Each rank writes
what became of its scenes as JSON, and rank 0 the losses of the example."""

import copy
import json
import pathlib
import sys
import types

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "examples" / "train_gpt")]

import torch
import torch.distributed as dist

import docs
import longspan
import ranks
from longspan.models import huggingface
from longspan.models.megatron import CoreAttention
from longspan.models.transformer_engine import DotProductAttention
from oracle import BARS, Terms, batch_attention, relative_rms, sequence_attention
from test_megatron import Config
from tiny import MODELS, tiny, tokens

SCENES = {}
FOLDER = pathlib.Path(sys.argv[1])


def scene(function):
    SCENES[function.__name__] = function
    return function


def raises(error, expected: str, function) -> None:
    try:
        function()
    except error as caught:
        assert expected in str(caught), caught
        return
    raise AssertionError(f"{expected} was not refused")


def train_alone(model, ids, lengths, steps):
    """Losses of one rank with all tokens, packed."""
    parallel = huggingface.use(model)
    return train_parallel(model, parallel, ids, lengths, steps)


def train_parallel(model, parallel, ids, lengths, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(steps):
        batch = parallel.shard(ids, labels=ids, lengths=lengths)
        loss = parallel.loss(model(**batch.inputs).logits, batch.targets)
        loss.backward()
        for parameter in model.parameters():
            if parameter.grad is not None and parallel.group is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_losses(name, ids, lengths, options=None, steps=10):
    model = tiny(name)
    want = train_alone(copy.deepcopy(model), ids, lengths, steps)
    parallel = huggingface.use(model, group=dist.group.WORLD, options=options)
    got = train_parallel(model, parallel, ids, lengths, steps)
    error = max(abs(a - b) / b for a, b in zip(got, want))
    assert error <= 1e-5, (name, error)


@scene
def transformers_train_as_on_one_rank():
    for name in MODELS:
        same_losses(name, tokens(2, 37), None, steps=6)


@scene
def transformers_train_on_packed_sequences():
    same_losses("gemma3", tokens(1, 61), [17, 0, 3, 41])


@scene
def transformers_take_options():
    for strategy, partition in (("all_gather", "striped"), ("ring", "contiguous")):
        options = longspan.Options(forward=strategy, backward=strategy, partition=partition)
        same_losses("gemma3", tokens(1, 40), None, options, steps=2)


@scene
def whole_logits_are_those_of_one_rank():
    model = tiny("gemma3").eval()
    ids = tokens(1, 29)
    want = model(ids).logits
    parallel = huggingface.use(model, group=dist.group.WORLD)
    batch = parallel.shard(ids)
    assert batch.targets is None
    got = batch.whole(model(**batch.inputs).logits)
    assert relative_rms(got, want) <= 2e-6


@scene
def transformers_refuse_by_name():
    model = tiny("gemma3", attention_dropout=0.1)
    parallel = huggingface.use(model, group=dist.group.WORLD)
    ids = tokens(1, 16)
    raises(longspan.InvalidArgument, "Parallel.shard", lambda: model(ids, use_cache=False))
    inputs = parallel.shard(ids).inputs
    raises(longspan.InvalidArgument, "dropout_seed", lambda: model(**inputs))
    mask = torch.ones_like(inputs["input_ids"])
    mask[:, -1] = 0
    raises(longspan.Unsupported, "lengths", lambda: model(**inputs, attention_mask=mask))
    raises(longspan.InvalidArgument, "sum to 9", lambda: parallel.shard(ids, lengths=[9]))
    parallel.dropout_seed = 1
    first = model(**inputs).logits
    assert torch.equal(first, model(**inputs).logits)
    parallel.dropout_seed = 2
    assert not torch.equal(first, model(**inputs).logits)


def dual_chunks(whole: torch.Tensor, dim: int) -> torch.Tensor:
    """This rank's chunks r and 2P - 1 - r of the 2P of one sequence, TransformerEngine's order."""
    count, rank = dist.get_world_size(), dist.get_rank()
    chunks = whole.chunk(2 * count, dim)
    return torch.cat((chunks[rank], chunks[2 * count - 1 - rank]), dim)


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for s in shapes]


def check_dual_chunks(out, want, inputs, cut, dtype=torch.float32):
    """Local output and gradients against [..., heads, dim] of the whole."""
    assert relative_rms(out, cut(want.flatten(-2))) <= BARS[dtype]
    dout = torch.randn(want.shape, generator=torch.Generator().manual_seed(1)).to(dtype).flatten(-2)
    mine = torch.autograd.grad(out, inputs, cut(dout))
    others = torch.autograd.grad(want.flatten(-2), inputs, dout.to(want.dtype))
    for gradient, other in zip(mine, others):
        dist.all_reduce(gradient)
        assert relative_rms(gradient, other) <= BARS[dtype]


@scene
def dot_product_attention_holds_to_dual_chunks():
    inputs = tensors((1, 48, 8, 8), (1, 48, 4, 8), (1, 48, 4, 8))
    cut = lambda whole: dual_chunks(whole, 1)
    for way in ("p2p", "all_gather", "a2a", "a2a+p2p"):
        for window in (None, (9, 0)):
            module = DotProductAttention(8, 8, num_gqa_groups=4, qkv_format="bshd",
                                         window_size=window)
            ranks = list(range(dist.get_world_size()))
            module.set_context_parallel_group(dist.group.WORLD, ranks, None, way)
            want = batch_attention(*inputs, Terms(causal=True, window=window or (-1, -1)))[0]
            check_dual_chunks(module(*(cut(t) for t in inputs)), want, inputs, cut)


@scene
def dot_product_attention_packs_with_padding():
    extents, lengths = [8, 16, 24], [5, 16, 20]
    inputs = tensors((48, 4, 8), (48, 2, 8), (48, 2, 8))
    starts = [0, 8, 24]
    want = torch.zeros(48, 4, 8, dtype=torch.float64)
    for start, length in zip(starts, lengths):
        rows = slice(start, start + length)
        want[rows] = sequence_attention(*(t[rows] for t in inputs), Terms(causal=True))[0]
    cut = lambda whole: torch.cat([dual_chunks(part, 0) for part in whole.split(extents)])
    ends = torch.tensor([0, *lengths]).cumsum(0)
    padded = torch.tensor([0, *extents]).cumsum(0)
    module = DotProductAttention(4, 8, num_gqa_groups=2, qkv_format="thd",
                                 attn_mask_type="padding_causal", cp_group=dist.group.WORLD)
    out = module(*(cut(t) for t in inputs), cu_seqlens_q=ends, cu_seqlens_kv=ends,
                 cu_seqlens_q_padded=padded, cu_seqlens_kv_padded=padded)
    check_dual_chunks(out, want, inputs, cut)


@scene
def dot_product_attention_refuses_by_name():
    module = DotProductAttention(4, 8, qkv_format="bshd", cp_group=dist.group.WORLD)
    odd = torch.randn(1, 5, 4, 8)
    raises(longspan.InvalidArgument, "20 tokens over 4 ranks", lambda: module(odd, odd, odd))
    even = torch.randn(1, 4, 4, 8)
    bias = {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": torch.zeros(1)}
    raises(longspan.Unsupported, "a bias under", lambda: module(even, even, even, **bias))
    dropping = DotProductAttention(4, 8, 4, 0.1, "bshd", cp_group=dist.group.WORLD)
    raises(longspan.InvalidArgument, "dropout_rng", lambda: dropping(even, even, even))


@scene
def megatron_core_attention():
    inputs = tensors((32, 2, 4, 8), (32, 2, 2, 8), (32, 2, 2, 8))
    groups = types.SimpleNamespace(cp=dist.group.WORLD)
    module = CoreAttention(Config(context_parallel_size=4), 1, "causal", "self",
                           cp_comm_type="all_gather", pg_collection=groups)
    want = batch_attention(*(t.transpose(0, 1) for t in inputs), Terms(causal=True))[0]
    cut = lambda whole: dual_chunks(whole, 0)
    check_dual_chunks(module(*(cut(t) for t in inputs), None), want.transpose(0, 1), inputs, cut)


@scene
def pages_run_on_ranks():
    for page in docs.PAGES:
        docs.run(page, "python torchrun")


@scene
def the_example_trains():
    import train

    words = ["--steps", "8", "--sequence", "250", "--device", "cpu"]
    losses = train.train(train.arguments(words))
    if dist.get_rank() == 0:
        (FOLDER / "example.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    ranks.play(SCENES, FOLDER)
    dist.barrier()
    dist.destroy_process_group()
