#!/usr/bin/env python3
"""Makes tests/data/lm: configurations of tiny models of every family and variant, and the logits and hidden
states that transformers computes with them.

Weights and tokens are a formula (`uniform`), which tests/support/lm_kit.cpp computes too: no weights are stored.
goldens.safetensors holds, per model M and length T, `M/T/logits` [P,V] and `M/T/hidden` [S,P,d] of one row of T
tokens: all positions of short rows, the last four of long ones; S counts the embeddings, every layer's result
but the last, and the normed one.
Needs transformers (5.24.0), torch (2.15.0), numpy and safetensors. Run from the root.
"""
import pathlib

import numpy as np
import torch
import transformers as t
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "lm"
SHORT, LONG, KEPT = (5, 33), (512, 9000), 4


def uniform(name, n):
    """n numbers of [-1, 1), multiples of 2^-23: splitmix64 of FNV-1a of the name plus the index."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    x = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return ((x >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32) * np.float32(2.0**-23)


def weight(name, shape):
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    if "norm" in name:
        return np.float32(1) + u * np.float32(0.25)
    return u if name.startswith("model.embed") else u * np.float32(0.25)


def tokens(n, vocab):
    return ((uniform("tokens", n).astype(np.float64) + 1) / 2 * vocab).astype(np.int64)


def variants():
    """Name -> configuration, and whether long rows are computed."""
    base = dict(vocab_size=80, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=16384, tie_word_embeddings=False,
                rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    few = {**base, "num_attention_heads": 2, "num_key_value_heads": 1}
    rope = lambda **k: dict(rope_theta=10000.0, **k)
    return {
        "llama": (t.LlamaConfig(**few), True),
        "llama-tied-mha": (t.LlamaConfig(**{**base, "tie_word_embeddings": True, "num_key_value_heads": 4}), False),
        "llama-wide-heads-biases": (t.LlamaConfig(**base, head_dim=12, attention_bias=True, mlp_bias=True), False),
        "llama-rope-llama3": (t.LlamaConfig(**few, rope_parameters=rope(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)), True),
        "llama-rope-linear": (t.LlamaConfig(**few, rope_parameters=rope(rope_type="linear", factor=4.0)), True),
        "llama-rope-yarn": (t.LlamaConfig(**few, rope_parameters=rope(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=128)), True),
        "llama-no-layers": (t.LlamaConfig(**{**base, "num_hidden_layers": 0}), False),
        "mistral-window": (t.MistralConfig(**few, sliding_window=7), True),
        "qwen2": (t.Qwen2Config(**base), False),
        "qwen2-window": (t.Qwen2Config(**{**base, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=6,
                                       max_window_layers=1), False),
        "qwen3": (t.Qwen3Config(**base, head_dim=16), False),
        "qwen3-tied": (t.Qwen3Config(**{**base, "tie_word_embeddings": True}, head_dim=8), False),
    }


def main():
    OUT.mkdir(exist_ok=True)
    goldens = {}
    for name, (config, is_long) in variants().items():
        config.architectures = [t.AutoModelForCausalLM._model_mapping[type(config)].__name__]
        (OUT / f"{name}.json").write_text(config.to_json_string())
        for n in SHORT + (LONG if is_long else ()):
            # Stored scores of 9000 tokens are no use; the fused kernel keeps none.
            model = t.AutoModelForCausalLM.from_config(
                config, attn_implementation="eager" if n < 4096 else "sdpa").float().eval()
            with torch.no_grad():
                for key, p in model.named_parameters():
                    p.copy_(torch.from_numpy(weight(key, tuple(p.shape))))
                r = model.model(torch.from_numpy(tokens(n, config.vocab_size))[None], output_hidden_states=True)
                logits = model.lm_head(r.last_hidden_state)
            hidden = r.hidden_states or (r.last_hidden_state,)
            kept = n if n in SHORT else KEPT
            goldens[f"{name}/{n}/logits"] = logits[0, -kept:].numpy().copy()
            goldens[f"{name}/{n}/hidden"] = np.stack([h[0, -kept:].numpy() for h in hidden])
            print(name, n, float(logits.abs().max()), float(np.abs(goldens[f"{name}/{n}/hidden"]).max()))
    save_file(goldens, OUT / "goldens.safetensors")


if __name__ == "__main__":
    main()
