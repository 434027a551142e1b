#!/usr/bin/env python3
"""Makes tests/data/hf_configs.json: files config.json, what transformers reads in them, and the frequencies of
their rotary embeddings as bits of f32.

Needs transformers (5.24.0) and torch. Run from the root.
"""
import importlib
import json
import pathlib

import numpy as np
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

OUT = pathlib.Path(__file__).parent / "hf_configs.json"
ROTARY = {"llama": "LlamaRotaryEmbedding", "mistral": "MistralRotaryEmbedding", "qwen2": "Qwen2RotaryEmbedding",
          "qwen3": "Qwen3RotaryEmbedding"}
ARCHITECTURE = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                "qwen3": "Qwen3ForCausalLM"}

LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
CASES = {
    "llama defaults": dict(model_type="llama"),
    "mistral defaults": dict(model_type="mistral"),
    "qwen2 defaults": dict(model_type="qwen2"),
    "qwen3 defaults": dict(model_type="qwen3"),
    "smollm2": dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                    num_attention_heads=9, num_key_value_heads=3, vocab_size=49152, rms_norm_eps=1e-05,
                    rope_theta=100000, rope_scaling=None, rope_interleaved=False, tie_word_embeddings=True,
                    torch_dtype="bfloat16", max_position_embeddings=8192, bos_token_id=1, eos_token_id=2,
                    pad_token_id=2, attention_bias=False, mlp_bias=False, hidden_act="silu"),
    "tinyllama": dict(model_type="llama", hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                      num_attention_heads=32, num_key_value_heads=4, rms_norm_eps=1e-05, vocab_size=32000,
                      rope_scaling=None, torch_dtype="float32"),
    "llama 3.1": dict(model_type="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                      num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, rope_theta=500000.0,
                      rope_scaling=dict(rope_type="llama3", **LLAMA3), max_position_embeddings=131072,
                      bos_token_id=128000, eos_token_id=[128001, 128008, 128009], torch_dtype="bfloat16"),
    "llama 3.2, keys of v5": dict(model_type="llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                  num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, head_dim=64,
                                  rope_parameters=dict(rope_type="llama3", rope_theta=500000.0,
                                                       **{**LLAMA3, "factor": 32.0}),
                                  max_position_embeddings=131072, tie_word_embeddings=True, dtype="bfloat16"),
    "linear": dict(model_type="llama", hidden_size=512, num_attention_heads=8, num_hidden_layers=2,
                   rope_theta=1000000, rope_scaling=dict(type="linear", factor=4.0)),
    "biases": dict(model_type="llama", hidden_size=64, num_attention_heads=4, head_dim=24, num_hidden_layers=0,
                   attention_bias=True, mlp_bias=True),
    "mistral with a window": dict(model_type="mistral", hidden_size=512, num_attention_heads=8,
                                  num_key_value_heads=2, num_hidden_layers=3, sliding_window=7,
                                  torch_dtype="float16"),
    "mistral without a window": dict(model_type="mistral", hidden_size=5120, num_attention_heads=32, head_dim=128,
                                     num_hidden_layers=3, sliding_window=None, rope_theta=1000000000.0,
                                     max_position_embeddings=1024000),
    "qwen2.5 with windows": dict(model_type="qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=6,
                                 num_attention_heads=14, num_key_value_heads=2, use_sliding_window=True,
                                 sliding_window=32768, max_window_layers=4, rope_theta=1000000.0,
                                 tie_word_embeddings=True, bos_token_id=151643, eos_token_id=151645),
    "qwen2.5 with windows unused": dict(model_type="qwen2", hidden_size=896, num_hidden_layers=6,
                                        num_attention_heads=14, num_key_value_heads=2, use_sliding_window=False,
                                        sliding_window=32768, max_window_layers=4),
    "qwen2 with layer types": dict(model_type="qwen2", hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                                   num_key_value_heads=None, use_sliding_window=True, sliding_window=16,
                                   layer_types=["sliding_attention", "full_attention"] * 2),
    "qwen3-4b": dict(model_type="qwen3", hidden_size=2560, intermediate_size=9728, num_hidden_layers=36,
                     num_attention_heads=32, num_key_value_heads=8, head_dim=128, attention_bias=False,
                     max_window_layers=36, max_position_embeddings=40960, rope_theta=1000000, rope_scaling=None,
                     sliding_window=None, use_sliding_window=False, tie_word_embeddings=True,
                     bos_token_id=151643, eos_token_id=151645, torch_dtype="bfloat16"),
    "yarn of qwen2.5": dict(model_type="qwen2", hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, rope_theta=1000000.0, max_position_embeddings=32768,
                            rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32768)),
    "yarn, keys of v5": dict(model_type="llama", hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2, max_position_embeddings=16384,
                             rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                  original_max_position_embeddings=128)),
    "yarn with an attention factor": dict(model_type="qwen3", hidden_size=256, num_hidden_layers=1, head_dim=80,
                                          num_attention_heads=4, num_key_value_heads=2, rope_theta=5000000.0,
                                          rope_scaling=dict(rope_type="yarn", factor=2.5, attention_factor=0.75,
                                                            beta_fast=16, beta_slow=2,
                                                            original_max_position_embeddings=4096)),
    "yarn with mscale": dict(model_type="llama", hidden_size=256, num_hidden_layers=1, num_attention_heads=4,
                             max_position_embeddings=163840,
                             rope_scaling=dict(rope_type="yarn", factor=40, mscale=0.707, mscale_all_dim=0.5,
                                               original_max_position_embeddings=4096)),
    "yarn not truncated": dict(model_type="llama", hidden_size=256, num_hidden_layers=1, num_attention_heads=4,
                               max_position_embeddings=131072,
                               rope_scaling=dict(rope_type="yarn", factor=32.0, truncate=False, beta_fast=32.0,
                                                 beta_slow=1.0, original_max_position_embeddings=4096)),
    "yarn whose ramp ends behind the head": dict(
        model_type="llama", hidden_size=64, num_hidden_layers=1, num_attention_heads=4, rope_theta=10.0,
        max_position_embeddings=8192, rope_scaling=dict(rope_type="yarn", factor=2.0, beta_fast=512,
                                                        original_max_position_embeddings=4096)),
    "yarn whose factor follows from the lengths": dict(
        model_type="llama", hidden_size=256, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=20000, rope_scaling=dict(rope_type="yarn", factor=None,
                                                         original_max_position_embeddings=4096)),
}


def expected(c):
    layers = c.num_hidden_layers
    heads = c.num_attention_heads
    window = getattr(c, "sliding_window", None) or 0
    if c.model_type == "llama":
        windows = [0] * layers
    elif c.model_type == "mistral":
        windows = [window] * layers
    else:
        windows = [window if t == "sliding_attention" else 0 for t in c.layer_types]
    bias = getattr(c, "attention_bias", False)
    eos = c.eos_token_id
    return dict(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=c.num_key_value_heads,
        head_dim=getattr(c, "head_dim", None) or c.hidden_size // heads, rms_norm_eps=c.rms_norm_eps,
        tie_word_embeddings=c.tie_word_embeddings, attention_bias_qkv=bias or c.model_type == "qwen2",
        attention_bias_o=bias, mlp_bias=getattr(c, "mlp_bias", False),
        max_position_embeddings=c.max_position_embeddings, sliding_windows=windows,
        bos_token_id=c.bos_token_id, pad_token_id=c.pad_token_id,
        eos_token_ids=eos if isinstance(eos, list) else [] if eos is None else [eos],
        dtype=None if c.dtype is None else str(c.dtype).split(".")[-1])


def main():
    lines = []
    for name, given in CASES.items():
        kind = given["model_type"]
        config = CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(given)))
        modeling = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        rotary = getattr(modeling, ROTARY[kind])(config)
        lines.append(json.dumps(dict(
            name=name, config=dict(architectures=[ARCHITECTURE[kind]], **given), expected=expected(config),
            inv_freq_bits=rotary.inv_freq.numpy().view(np.uint32).tolist(),
            attention_scaling=float(rotary.attention_scaling))))
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
