#!/usr/bin/env python3
"""Prefill and decoding beside transformers and llama.cpp: same model, threads and dtype, turn about.

  bench/generate.py MODEL [--gguf FILE] [--dtype f32|bf16] [--threads N] [--rounds N] [--json FILE]

MODEL is a Hugging Face folder. For llama.cpp a GGUF file of the same dtype is made of FILE, which
holds the same model in any type. Needs transformers, torch, gguf and llama-cpp-python, each left out
where it is not installed. Prints one line a round and peer, then the best of each and our ratio to it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT, NEW = 512, 64


def ids_of(vocab):
    return [(i * 7919 + 13) % vocab for i in range(PROMPT)]


def ours(o):
    run = subprocess.run([ROOT / "build/release/stowage", "bench", "generate", "--model", o.model, "--dtype", o.dtype,
                          "--prompt-tokens", str(PROMPT), "--max-tokens", str(NEW), "--json", "-"],
                         capture_output=True, text=True, check=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
    line = json.loads(run.stdout.splitlines()[-1])
    return line["prefill_tokens_per_s"], line["decode_tokens_per_s"]


class Transformers:
    def __init__(self, o):
        import torch
        import transformers
        torch.set_num_threads(o.threads)
        self.torch = torch
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[o.dtype]
        self.model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=dtype).eval()
        self.ids = torch.tensor([ids_of(self.model.config.vocab_size)])

    def __call__(self, o):
        with self.torch.no_grad():
            start = time.perf_counter()
            out = self.model(self.ids, use_cache=True, logits_to_keep=1)
            prefill = time.perf_counter() - start
            start = time.perf_counter()
            for _ in range(NEW):
                token = out.logits[:, -1:].argmax(-1)
                out = self.model(token, past_key_values=out.past_key_values, use_cache=True)
            return PROMPT / prefill, NEW / (time.perf_counter() - start)


def gguf_of(source, dtype):
    """The model of a GGUF file with every matrix in one dtype, beside it."""
    import gguf
    import numpy as np
    out = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"{pathlib.Path(source).stem}.{dtype}.gguf"
    if out.exists():
        return out
    reader = gguf.GGUFReader(source)
    arch = str(bytes(reader.fields["general.architecture"].parts[-1]), "utf-8")
    writer = gguf.GGUFWriter(out, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if field.name == "general.file_type":
            value = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16}[dtype]
        writer.add_key_value(field.name, value, kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        data = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        if dtype == "bf16" and data.ndim > 1:
            writer.add_tensor(t.name, gguf.quants.quantize(data, gguf.GGMLQuantizationType.BF16),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(t.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


class LlamaCpp:
    def __init__(self, o):
        import llama_cpp
        kind = {"f32": 0, "bf16": 1}[o.dtype]  # of the cache: f32, or f16, which llama.cpp has for bf16
        self.model = llama_cpp.Llama(str(gguf_of(o.gguf, o.dtype)), n_ctx=PROMPT + NEW + 8, n_threads=o.threads,
                                     n_threads_batch=o.threads, n_batch=512, n_ubatch=512, type_k=kind, type_v=kind,
                                     verbose=False)
        self.ids = ids_of(self.model.n_vocab())

    def __call__(self, o):
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(self.ids)
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for i in range(NEW):
            self.model.eval([self.ids[i]])
        return PROMPT / prefill, NEW / (time.perf_counter() - start)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--gguf")
    ap.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--json")
    o = ap.parse_args()
    peers = {"stowage": ours}
    for name, make in (("transformers", Transformers), ("llama.cpp", LlamaCpp)):
        if name == "llama.cpp" and not o.gguf:
            continue
        try:
            peers[name] = make(o)
        except ImportError as e:
            print(f"{name} is left out: {e}", file=sys.stderr)
    best = {name: (0.0, 0.0) for name in peers}
    for round in range(o.rounds):
        for name, run in peers.items():
            prefill, decode = run(o)
            best[name] = (max(best[name][0], prefill), max(best[name][1], decode))
            print(f"round {round} {name:<13} prefill {prefill:8.1f} decode {decode:7.1f} tokens/s", flush=True)
    for name, (prefill, decode) in best.items():
        print(f"best    {name:<13} prefill {prefill:8.1f} decode {decode:7.1f} tokens/s; stowage is "
              f"{best['stowage'][0] / prefill:.2f} and {best['stowage'][1] / decode:.2f} times that")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps({"dtype": o.dtype, "threads": o.threads, "best": best}) + "\n")


if __name__ == "__main__":
    main()
