#!/usr/bin/env python3
"""LoRA fine-tuning beside transformers with peft: same model, data, threads and dtype, turn about.

  bench/finetune.py MODEL [--threads N] [--rounds N] [--steps N] [--only BxT] [--dtype f32|bf16] [--json FILE]

MODEL is a Hugging Face folder. Rank 8 on all linear layers, AdamW, batches of 4 x 256 and 1 x 1024
tokens. Memory is the largest resident set of each process. Needs transformers, torch and peft in the
Python that runs it. Prints a line a round and peer, then the medians and the ratios.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(batch, seq, steps):
    draw = random.Random(0)
    return [[draw.randrange(100, 5000) for _ in range(seq + 1)] for _ in range(batch * steps)]


def peer(o):
    """The loop of transformers and peft, in a process of its own."""
    import peft
    import torch
    import transformers
    torch.set_num_threads(o.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[o.dtype]
    model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=dtype)
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    data = rows(o.batch, o.seq, o.steps)
    times = []
    for i in range(o.steps):
        ids = torch.tensor(data[i * o.batch:(i + 1) * o.batch])
        start = time.perf_counter()
        loss = model(ids[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(loss.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    print(json.dumps({"step_s": statistics.median(times[1:]),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def run_peer(o, batch, seq, dtype):
    run = subprocess.run([sys.executable, __file__, o.model, "--as-peer", "--batch", str(batch), "--seq", str(seq),
                          "--dtype", dtype, "--steps", str(o.steps), "--threads", str(o.threads)],
                         capture_output=True, text=True, check=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
    line = json.loads(run.stdout.splitlines()[-1])
    return line["step_s"], line["rss"]


def run_ours(o, batch, seq, dtype):
    with tempfile.TemporaryDirectory() as d:
        data = pathlib.Path(d) / "train.jsonl"
        data.write_text("".join(json.dumps({"tokens": r}) + "\n" for r in rows(batch, seq, o.steps)))
        arguments = [ROOT / "build/release/stowage", "train", "--json", "-"]
        for key, value in {"model.path": o.model, "data.path": data, "lora.rank": 8, "data.seq": seq,
                           "data.batch": batch, "data.shuffle": "false", "train.steps": o.steps,
                           "model.dtype": dtype, "train.compute": dtype, "train.checkpoint_every": 0,
                           "train.out": f"{d}/out"}.items():
            arguments += ["--set", f"{key}={value}"]
        for setting in o.set:
            arguments += ["--set", setting]
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"stowage train ended with status {status}")
        line = json.loads(out.splitlines()[-1])
        return line["measured_step_s"], usage.ru_maxrss * 1024, line["measured_peak_bytes"]["device"]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--only")
    ap.add_argument("--dtype", choices=["f32", "bf16"])
    ap.add_argument("--set", action="append", default=[], help="settings for ours")
    ap.add_argument("--json")
    ap.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    ap.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    ap.add_argument("--seq", type=int, help=argparse.SUPPRESS)
    o = ap.parse_args()
    if o.as_peer:
        return peer(o)
    results = []
    for batch, seq in [(4, 256), (1, 1024)]:
        if o.only and o.only != f"{batch}x{seq}":
            continue
        for dtype in [o.dtype] if o.dtype else ["f32", "bf16"]:
            ours, theirs = [], []
            for _ in range(o.rounds):
                ours.append(run_ours(o, batch, seq, dtype))
                theirs.append(run_peer(o, batch, seq, dtype))
                print(f"  {batch} x {seq} {dtype}: {batch * seq / ours[-1][0]:.0f} and {batch * seq / theirs[-1][0]:.0f} tokens/s",
                      flush=True)
            a, b = (statistics.median(x[0] for x in side) for side in (ours, theirs))
            rss, their_rss = (min(x[1] for x in side) for side in (ours, theirs))
            line = {"batch": batch, "seq": seq, "dtype": dtype, "tokens_per_s": batch * seq / a,
                    "peer_tokens_per_s": batch * seq / b, "ratio": b / a, "rss": rss, "peer_rss": their_rss,
                    "planned_peak": ours[0][2]}
            results.append(line)
            print(f"{batch} x {seq} {dtype}: {line['tokens_per_s']:.0f} tokens/s, transformers + peft "
                  f"{line['peer_tokens_per_s']:.0f}, {line['ratio']:.2f} times; {rss / 2**20:.0f} MiB resident "
                  f"against {their_rss / 2**20:.0f}, planned {line['planned_peak'] / 2**20:.0f} MiB", flush=True)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
