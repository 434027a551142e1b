#!/usr/bin/env python3
"""Makes peft.json: logits and gradients of tiny models with adapters, by transformers and peft.

Weights are given by a formula of the tensor's name (value_of), so that the file holds configurations,
names with shapes, a few logits, and norms of the gradients of the mean cross-entropy. Run with the versions in its first lines: python make_peft.py
"""

import json
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import peft
import safetensors.torch
import torch
import transformers

warnings.filterwarnings("ignore")
VOCAB, DIM, FFN, LAYERS, HEADS, KV = 24, 16, 20, 3, 4, 2
TOKENS = [[1, 5, 9, 2, 7, 20, 3, 11], [23, 0, 4, 4, 8, 15, 16, 6]]
PREFIX = "base_model.model."


def values_of(name, shape, amplitude=0.25):
    seed = sum((i + 1) * b for i, b in enumerate(name.encode()))
    n = int(np.prod(shape))
    mask = np.uint64(0xFFFFFFFF)
    u = (np.arange(n, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 40503)) & mask
    u ^= u >> np.uint64(15)
    u = (u * np.uint64(2246822519)) & mask
    u ^= u >> np.uint64(13)
    x = (u.astype(np.float64) / 2147483648.0 - 1.0) * amplitude
    if name.endswith("norm.weight"):
        x += 1.0
    return torch.tensor(x.astype(np.float32).reshape(shape))


def base_model(tied):
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=64,
        tie_word_embeddings=tied, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(values_of(name, p.shape))
    return model


CASES = {
    "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "all_linear": dict(r=2, lora_alpha=6, target_modules="all-linear", lora_dropout=0.1),
    "rslora": dict(r=4, lora_alpha=3, use_rslora=True, target_modules=["o_proj", "down_proj"]),
    "regex": dict(r=3, lora_alpha=5, target_modules=r".*\.(layers\.[02])\.(self_attn\.k|mlp\.\w+)_proj$"),
    "anchored": dict(r=3, lora_alpha=5, target_modules=r"^model\.layers\.\d+\.self_attn\.(q|k)_proj"),
    "patterns": dict(
        r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "gate_proj"],
        rank_pattern={"^model.layers.0.self_attn.q_proj": 1, "layers.1.self_attn.[qk]_proj": 5,
                      "gate_proj": 3, "layers.2.mlp.gate_proj": 1},
        alpha_pattern={"layers.1.self_attn.q_proj": 9, "k_proj": 1}),
    "layers": dict(r=2, lora_alpha=4, target_modules=["up_proj", "self_attn.q_proj"],
                   layers_to_transform=[0, 2], layers_pattern="layers"),
    "excluded": dict(r=2, lora_alpha=4, target_modules="all-linear",
                     exclude_modules=["layers.1.mlp.up_proj", "q_proj"]),
    "embedding": dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "lm_head", "q_proj"]),
    "embedding_tied": dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "v_proj"], tied=True),
    "head_tied": dict(r=3, lora_alpha=6, target_modules=["lm_head", "v_proj"], tied=True),
    "saved": dict(r=2, lora_alpha=2, target_modules=["v_proj"],
                  modules_to_save=["lm_head", "embed_tokens", "model.norm"]),
    "saved_tied": dict(r=2, lora_alpha=2, target_modules=["v_proj"], modules_to_save=["lm_head"],
                       tied=True),
    "bf16": dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], bf16=True),
}


def run(name, case):
    case = dict(case)
    tied, bf16 = case.pop("tied", False), case.pop("bf16", False)
    base = base_model(tied)
    if bf16:
        base = base.to(torch.bfloat16)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **case)
    made = peft.get_peft_model(base, config)
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        path = os.path.join(folder, "adapter_model.safetensors")
        tensors = safetensors.torch.load_file(path)
        for key, t in tensors.items():
            own = key
            if ".base_layer" in key:
                own = key.removeprefix(PREFIX).replace(".base_layer", "")
                if tied and own == "lm_head.weight":
                    own = "model.embed_tokens.weight"
            tensors[key] = values_of(own, t.shape)
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
        text = json.load(open(os.path.join(folder, "adapter_config.json")))
        base = base_model(tied)
        if bf16:
            base = base.to(torch.bfloat16)
        model = peft.PeftModel.from_pretrained(base, folder, is_trainable=True).eval()
    ids = torch.tensor(TOKENS)
    out = model(ids).logits.float()
    gradients = {}
    if not bf16:
        loss = torch.nn.functional.cross_entropy(out[:, :-1].reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        for key, p in model.named_parameters():
            if p.grad is not None:
                key = key.replace(".modules_to_save", "").replace(".default", "")
                gradients[key] = float(f"{p.grad.norm():.7g}")
    logits = out.detach().numpy()
    text["base_model_name_or_path"] = "base"
    shapes = {k: list(t.shape) for k, t in sorted(tensors.items())}
    return dict(tied=tied, bf16=bf16, config=text, tensors=shapes, gradients=gradients,
                logits=[float(f"{x:.7g}") for x in logits[:, ::3].ravel()])


def main():
    # Sets have no order of their own.
    def ordered(x):
        if isinstance(x, dict):
            return {k: sorted(v) if k == "target_modules" and isinstance(v, list) else ordered(v)
                    for k, v in x.items()}
        return x
    out = {"peft": peft.__version__, "transformers": transformers.__version__, "tokens": TOKENS,
           "cases": {k: ordered(run(k, v)) for k, v in CASES.items()}}
    path = pathlib.Path(__file__).parent / "peft.json"
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in out["cases"].items())
    head = {k: v for k, v in out.items() if k != "cases"}
    path.write_text(json.dumps(head)[:-1] + ',\n "cases": {\n' + lines + "\n }}\n")
    print(path, path.stat().st_size, "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
