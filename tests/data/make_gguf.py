#!/usr/bin/env python3
"""Makes tests/data/gguf: tiny GGUF models as llama.cpp's converter writes them, the tensors of the Hugging Face
models that they were made of, blocks of every tensor type that is read with their values, and the ids that
transformers gives with a SentencePiece vocabulary of a GGUF file.

Needs gguf (0.19.0), safetensors, numpy and transformers (5.24.0). Run from the root.
"""
import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "gguf"
rng = np.random.default_rng(52)


def permute(weights, heads):
    """As convert_hf_to_gguf.py, LlamaModel.permute."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(
        weights.shape)


def blocks():
    rows = []
    for kind in (Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q8_0, Type.Q4_K, Type.Q6_K):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        n = max(1, 64 // elements)
        data = rng.integers(0, 256, (n, size), dtype=np.uint8)
        halves = {Type.Q4_0: [0], Type.Q8_0: [0], Type.Q4_1: [0, 2], Type.Q4_K: [0, 2], Type.Q6_K: [208]}
        for at in halves.get(kind, []):  # scales are numbers
            data[:, at:at + 2] = rng.standard_normal((n, 1)).astype(np.float16).view(np.uint8)
        if kind in (Type.F32, Type.F16, Type.BF16):
            values = rng.standard_normal(n).astype(np.float32)
            data = gguf.quants.quantize(values, kind).view(np.uint8).reshape(n, size)
        stored = data.reshape(1, -1)
        floats = {Type.F32: np.float32, Type.F16: np.float16}
        values = gguf.quants.dequantize(stored.view(floats.get(kind, np.uint8)), kind)
        rows.append(dict(type=kind.name, bytes=stored.tobytes().hex(),
                         values=np.ascontiguousarray(values, np.float32).tobytes().hex()))
    (OUT / "blocks.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def model(name, arch, layers, heads, kv_heads, head_dim, hidden, ffn, vocab, types, bias=False, qk_norm=False,
          tied=True, rope_freqs=False):
    """types: the tensor type of each kind of matrix; others are F32."""
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", arch)
    writer.add_name(name)
    writer.add_type("model")
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if arch == "qwen3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 3)
    expected = {}

    def add(gguf_name, hf_name, *shape, permuted=0):
        weights = rng.standard_normal(shape).astype(np.float32)
        kind = types.get(gguf_name.split(".")[-1], Type.F32) if len(shape) == 2 else Type.F32
        suffix = ".bias" if hf_name.endswith(".bias") else ".weight"
        if kind == Type.F32:
            stored = values = weights
        else:
            stored = gguf.quants.quantize(weights, kind)
            values = gguf.quants.dequantize(stored, kind)
        # What is stored row by row may be permuted afterwards.
        if permuted:
            stored = permute(stored, permuted)
        writer.add_tensor(gguf_name + suffix, np.ascontiguousarray(stored), raw_dtype=kind)
        expected[hf_name] = np.ascontiguousarray(values, np.float32)

    def linear(gguf_name, hf_name, out, into, with_bias, permuted=0):
        add(gguf_name, hf_name + ".weight", out, into, permuted=permuted)
        if with_bias:
            add(gguf_name, hf_name + ".bias", out, permuted=permuted)

    if rope_freqs:
        writer.add_tensor("rope_freqs.weight", np.arange(1, head_dim // 2 + 1, dtype=np.float32))
    add("token_embd", "model.embed_tokens.weight", vocab, hidden)
    llama = arch == "llama"
    for i in range(layers):
        g, h = f"blk.{i}.", f"model.layers.{i}."
        add(g + "attn_norm", h + "input_layernorm.weight", hidden)
        linear(g + "attn_q", h + "self_attn.q_proj", heads * head_dim, hidden, bias, permuted=llama * heads)
        linear(g + "attn_k", h + "self_attn.k_proj", kv_heads * head_dim, hidden, bias, permuted=llama * kv_heads)
        linear(g + "attn_v", h + "self_attn.v_proj", kv_heads * head_dim, hidden, bias)
        linear(g + "attn_output", h + "self_attn.o_proj", hidden, heads * head_dim, False)
        if qk_norm:
            add(g + "attn_q_norm", h + "self_attn.q_norm.weight", head_dim)
            add(g + "attn_k_norm", h + "self_attn.k_norm.weight", head_dim)
        add(g + "ffn_norm", h + "post_attention_layernorm.weight", hidden)
        linear(g + "ffn_gate", h + "mlp.gate_proj", ffn, hidden, False)
        linear(g + "ffn_up", h + "mlp.up_proj", ffn, hidden, False)
        linear(g + "ffn_down", h + "mlp.down_proj", hidden, ffn, False)
    add("output_norm", "model.norm.weight", hidden)
    if not tied:
        add("output", "lm_head.weight", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, OUT / f"{name}.safetensors")


def sentencepiece():
    """The vocabulary of tokenizers/llama2.json with a score per token and no merges."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_merges
    vocab = json.loads((OUT.parent / "tokenizers/llama2.json").read_text())["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    tokenizer, _ = convert_gguf_tokenizer("llama", dict(
        tokenizer_type="llama", tokens=tokens, scores=[-float(i) for i in range(len(tokens))],
        token_type=[2, 3, 3] + [6 if t.startswith("<0x") else 1 for t in tokens[3:]]))
    texts = ["", " ", "   ", "Hello, world!", " leading", "trailing ", "a  b   c", "don't I'LL", "1234567 3.14",
             "\n\t x\r\n", "naïve façade", "漢字かな", "😀 smile", "<s>in the</s> middle<s> of", "the quick brown fox",
             "def f(x):\n    return x + 1\n", "e\u0301 \u00e9", "▁ literal", "<0x41>", "theatre thereof otherwise"]
    rows = [dict(text=t, ids=tokenizer.encode(t, add_special_tokens=False).ids) for t in texts]
    # Scores that several tokens share, and tokens that can be made in several ways.
    tokens = ["<unk>", "a", "b", "c", "é", "ab", "bc", "abc", "bcé", "cé", "abcé", "aé", "aab", "aa"]
    scores = [0.0, 0.0, 0.0, 0.0, 0.0, -1.0, -1.0, -2.0, -2.0, -1.0, -1.5, -2.0, -1.0, -2.0]
    merges = get_merges(dict(tokens=tokens, scores=scores))
    (OUT / "merges.json").write_text(json.dumps(dict(tokens=tokens, scores=scores, merges=merges)) + "\n")
    (OUT / "sentencepiece.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def main():
    OUT.mkdir(exist_ok=True)
    sentencepiece()
    blocks()
    quantized = dict(token_embd=Type.Q8_0, attn_q=Type.Q8_0, attn_k=Type.Q4_1, attn_v=Type.Q4_0, ffn_gate=Type.Q4_1,
                     ffn_up=Type.F16, ffn_down=Type.BF16)
    model("llama", "llama", layers=1, heads=2, kv_heads=1, head_dim=16, hidden=32, ffn=32, vocab=8, types=quantized,
          bias=True, rope_freqs=True)
    model("qwen2", "qwen2", layers=1, heads=2, kv_heads=1, head_dim=8, hidden=16, ffn=24, vocab=8, types={},
          bias=True)
    model("qwen3", "qwen3", layers=1, heads=2, kv_heads=2, head_dim=12, hidden=16, ffn=24, vocab=8,
          types={k: Type.BF16 for k in ("token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate",
                                        "ffn_up", "ffn_down", "output")}, qk_norm=True, tied=False)


main()
