"""Small models with the shapes of ones that people train, and random weights."""

import torch
import transformers

_COMMON = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "initializer_range": 0.1,  # so that scores are of the order of 1
}
_WINDOWED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}

# GQA in most; windows and full layers, soft caps, sinks, values of another dim than keys.
MODELS = {
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM,
               {**_WINDOWED, "query_pre_attn_scalar": 20}),
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM,
               {**_WINDOWED, "attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 12}),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {}),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM,
                {"sliding_window": 8}),
    "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM,
                    {"num_key_value_heads": 6, "q_lora_rank": 24, "kv_lora_rank": 16,
                     "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
                     "first_k_dense_replace": 4, "head_dim": 8}),
    "gpt_oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM,
                {**_WINDOWED, "num_local_experts": 2, "num_experts_per_tok": 1}),
}


def tiny(name: str, implementation: str = "eager", dtype=torch.float32, seed=0, **changes):
    """A model in training mode; the same weights for the same name and seed."""
    config, model, own = MODELS[name]
    torch.manual_seed(seed)
    settings = {**_COMMON, **own, **changes, "attn_implementation": implementation}
    return model(config(**settings)).to(dtype).train()


def tokens(batch: int, seq: int, seed=0) -> torch.Tensor:
    """[batch, seq] of a text-like source: the next token follows from the last with some noise."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 4, (batch, seq), generator=generator)
    return (noise.cumsum(1) * 7 + torch.arange(batch)[:, None]) % 96 + 1
