"""transformers' models with longspan against their own eager attention, on one rank."""

import copy

import pytest
import torch
import transformers

import longspan
from longspan.models import huggingface
from oracle import relative_rms
from tiny import MODELS, tiny, tokens


def both(name, **changes):
    """The same weights with eager attention and with longspan."""
    eager, ours = tiny(name, **changes), tiny(name, **changes)
    huggingface.use(ours)
    return eager, ours


def train(model, inputs: dict, steps=20) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(steps):
        loss = model(**inputs, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_training_has_the_losses_of_eager(name):
    ids = tokens(2, 40)
    want, got = (train(model, {"input_ids": ids, "labels": ids}) for model in both(name))
    assert want[-1] < 0.95 * want[0]
    assert got == pytest.approx(want, rel=1e-5)


def test_training_in_bf16_stays_within_its_noise():
    ids = tokens(2, 40)
    inputs = {"input_ids": ids, "labels": ids}
    eager, ours = both("gemma3", dtype=torch.bfloat16)
    want, got = train(eager, inputs), train(ours, inputs)
    exact = train(tiny("gemma3", dtype=torch.float64), inputs)
    errors = [max(abs(a - b) / b for a, b in zip(losses, exact)) for losses in (want, got)]
    assert errors[1] <= max(1.5 * errors[0], 0.004)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    ids = tokens(2, 33)
    gradients = []
    for model in both(name):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    want, got = gradients
    assert want.keys() == got.keys()
    largest = max(gradient.norm() for gradient in want.values())
    for parameter, gradient in want.items():
        error = (got[parameter] - gradient).norm()
        assert error <= 1e-5 * gradient.norm() + 1e-7 * largest, parameter


def packed_inputs(lengths):
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    ids = tokens(1, sum(lengths))
    return {"input_ids": ids, "labels": ids, "position_ids": positions}


@pytest.mark.parametrize("name", MODELS)
def test_packed_sequences_by_position_ids(name):
    inputs = packed_inputs([17, 5, 30])
    want, got = (train(model, inputs, 10) for model in both(name))
    assert got == pytest.approx(want, rel=1e-5)


def test_packed_sequences_by_cumulative_lengths():
    inputs = packed_inputs([17, 5, 30])
    ends = torch.tensor([0, 17, 22, 52], dtype=torch.int32)
    eager, ours = both("gemma3")
    want = eager(**inputs, use_cache=False).logits
    positions = inputs.pop("position_ids")
    got = ours(**inputs, position_ids=positions, cu_seq_lens_q=ends, cu_seq_lens_k=ends,
               use_cache=False).logits
    assert relative_rms(got, want) <= 2e-6


def test_packed_rows_of_a_batch():
    positions = torch.tensor([[*range(9), *range(11)], [*range(20)]])
    eager, ours = both("gemma3")
    inputs = {"input_ids": tokens(2, 20), "position_ids": positions, "use_cache": False}
    assert relative_rms(ours(**inputs).logits, eager(**inputs).logits) <= 2e-6


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_padding(name, side):
    ids = tokens(3, 21)
    mask = torch.arange(21)[None] < torch.tensor([21, 12, 1])[:, None]
    mask = mask.flip(1) if side == "left" else mask
    eager, ours = both(name)
    inputs = {"input_ids": ids, "attention_mask": mask.long(), "use_cache": False}
    want, got = eager(**inputs).logits, ours(**inputs).logits
    assert relative_rms(got[mask], want[mask]) <= 2e-6


@pytest.mark.parametrize("name", MODELS)
def test_generation_with_a_cache(name):
    prompt = tokens(2, 12)
    mask = torch.ones_like(prompt)
    mask[1, :5] = 0
    eager, ours = (model.eval() for model in both(name))
    settings = {"max_new_tokens": 12, "do_sample": False, "output_scores": True,
                "return_dict_in_generate": True, "attention_mask": mask}
    want, got = eager.generate(prompt, **settings), ours.generate(prompt, **settings)
    assert torch.equal(got.sequences, want.sequences)
    for mine, other in zip(got.scores, want.scores):
        assert relative_rms(mine, other) <= 1e-5


def test_a_model_is_changed_alone():
    eager, ours = both("qwen3")
    assert eager.config._attn_implementation == "eager"
    assert ours.config._attn_implementation == "longspan"
    by_name = tiny("qwen3", implementation="longspan")
    ids = tokens(1, 16)
    assert torch.equal(by_name(ids).logits, ours(ids).logits)


def test_gradient_checkpointing_gives_the_same_gradients():
    ids = tokens(2, 24)
    gradients = []
    for checkpointed in (False, True):
        model = tiny("gemma3", implementation="longspan", attention_dropout=0.2)
        if checkpointed:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad)
    assert torch.equal(*gradients)


def test_compiles_once():
    ids = tokens(2, 24)
    model = tiny("gemma3", implementation="longspan")
    compiled = torch.compile(model, backend="aot_eager")
    results = []
    for function in (model, compiled):
        loss = function(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        results.append((loss.detach(), model.model.layers[0].self_attn.q_proj.weight.grad))
        model.zero_grad()
    for mine, other in zip(*results):
        assert relative_rms(mine, other) <= 1e-6
    with torch.compiler.set_stance("fail_on_recompile"):
        others = tokens(2, 24, seed=1)
        compiled(input_ids=others, labels=others, use_cache=False).loss.backward()


def refused(model, expected: str, error=longspan.Unsupported, **inputs):
    with pytest.raises(error, match=expected):
        model(**{"input_ids": tokens(2, 10), "use_cache": False, **inputs})


def test_refusals_name_what_is_refused():
    model = tiny("gemma3", implementation="longspan")
    refused(model, r"dense mask of shape \(2, 1, 10, 10\)", attention_mask=torch.ones(2, 1, 10, 10))
    holes = torch.ones(2, 10)
    holes[0, 4] = 0
    refused(model, "zeros between tokens", attention_mask=holes)
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    refused(model, "queries end at position 10, keys at 32", cache=cache, use_cache=True)
    ends = torch.tensor([0, 4, 10], dtype=torch.int32)
    refused(model, "batch of 2", longspan.InvalidArgument, cu_seq_lens_q=ends, cu_seq_lens_k=ends)
    both_ways = tiny("gemma3", implementation="longspan", use_bidirectional_attention=True)
    refused(both_ways, "the term 'or_masks'")
    with pytest.raises(longspan.Unsupported, match="balanced"):
        huggingface.use(model, options=longspan.Options(partition="balanced"))


def test_score_changing_arguments_are_refused():
    module = torch.nn.Module()
    q = k = v = torch.randn(1, 2, 4, 8)
    function = transformers.AttentionInterface()["longspan"]
    for name in ("position_bias", "head_mask", "indices"):
        with pytest.raises(longspan.Unsupported, match=name):
            function(module, q, k, v, None, **{name: torch.zeros(1)})


def test_models_that_compute_attention_themselves_are_refused():
    config = transformers.BloomConfig(vocab_size=97, hidden_size=32, n_layer=1, n_head=4)
    with pytest.raises(longspan.Unsupported, match="BloomForCausalLM"):
        huggingface.use(transformers.BloomForCausalLM(config))


@pytest.mark.parametrize(
    ("model", "settings"),
    [("Bloom", {"n_layer": 1, "n_head": 4}), ("Mpt", {"n_layers": 1, "n_heads": 4, "d_model": 32}),
     ("XGLM", {"num_layers": 1, "attention_heads": 4, "d_model": 32, "ffn_dim": 32})],
)
def test_models_that_compute_with_their_mask_are_refused(model, settings):
    config = getattr(transformers, f"{model}Config")(
        vocab_size=97, **settings, attn_implementation="longspan"
    )
    made = getattr(transformers, f"{model}ForCausalLM")(config)
    refused(made, "computes with its attention mask")


def test_a_mask_has_no_more_than_its_terms():
    mask = huggingface._masks.Mask(causal=True)
    assert not hasattr(mask, "shape") and copy.deepcopy(mask) == mask
    with pytest.raises(longspan.Unsupported, match="'add'"):
        torch.ones(2) + mask


def test_encoders_and_decoders():
    settings = {"vocab_size": 97, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
                "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32, "pad_token_id": 0}
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**settings)).eval()
    mask = (torch.arange(14)[None] < torch.tensor([14, 6])[:, None]).long()
    inputs = {"input_ids": tokens(2, 14), "attention_mask": mask, "labels": tokens(2, 9)}
    model.set_attn_implementation("eager")
    want = model(**inputs).logits
    huggingface.use(model)
    assert relative_rms(model(**inputs).logits, want) <= 2e-6


def test_encoders():
    settings = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2,
                "num_attention_heads": 4, "intermediate_size": 64}
    models = []
    for implementation in ("eager", "longspan"):
        torch.manual_seed(0)
        config = transformers.BertConfig(**settings, attn_implementation=implementation)
        models.append(transformers.BertModel(config).eval())
    mask = (torch.arange(14)[None] < torch.tensor([14, 6])[:, None]).long()
    want, got = (m(input_ids=tokens(2, 14), attention_mask=mask).last_hidden_state for m in models)
    assert relative_rms(got[mask.bool()], want[mask.bool()]) <= 2e-6


def test_wrong_inputs_are_named():
    with pytest.raises(longspan.InvalidArgument, match="model is a Linear"):
        huggingface.use(torch.nn.Linear(2, 2))
    parallel, ids = huggingface.use(tiny("gemma3")), tokens(2, 20)
    with pytest.raises(longspan.InvalidArgument, match=r"input_ids is \[20\]"):
        parallel.shard(ids[0])
    with pytest.raises(longspan.InvalidArgument, match=r"labels is \[2, 5\]"):
        parallel.shard(ids, labels=ids[:, :5])
    with pytest.raises(longspan.InvalidArgument, match="list of integers"):
        parallel.shard(ids[:1], lengths=[9.5, 10.5])


def test_one_rank_loss_helper():
    model = tiny("gemma3")
    parallel = huggingface.use(model)
    ids = tokens(2, 20)
    want = model(input_ids=ids, labels=ids, use_cache=False).loss
    batch = parallel.shard(ids, labels=ids)
    got = parallel.loss(model(**batch.inputs).logits, batch.targets)
    assert relative_rms(got, want) <= 1e-6
