#!/usr/bin/env python3
"""Measures a machine's section of docs/benchmarks.md: the training step beside JAX and PyTorch, products beside
oneDNN, attention beside PyTorch, and where the time of a step goes. bench/machine_table.py writes it.

  ./stowage bench tables [--machine NAME] [--rounds 2] [--steps 3] [--compile] [--compare FILE] [--isa avx2]

It takes some 20 minutes. Run from the root of a checkout that has been built, with ../shared/peers beside it.
--machine is the section's heading; a section of that name is replaced, except for rows of other commands and the
text from its first ### on. --compare takes
the output of a run of ../shared/peers/compare instead of making one. --compile adds compiled PyTorch to the
peers. --isa avx2 holds everybody to that.
"""
import argparse
import datetime
import functools
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import goals
import machine_table

CONFIGS = ["small", "medium", "vocab", "long"]
VOCAB_DIM, VOCAB_WORDS = 512, 65536  # of the head of vocab
# What holds each to AVX2: us, oneDNN, PyTorch's own kernels, MKL, XLA.
AVX2_ONLY = dict(STOW_ISA="avx2", ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2",
                 XLA_FLAGS="--xla_cpu_max_isa=AVX2")
POLICIES = ["save_all", "save_gate", "save_named", "recompute"]
MIB = 2**20
ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"


def run(*command, env=None, ok=(0,)):
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    if done.returncode not in ok:
        raise SystemExit(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def environment(**more):
    return dict(os.environ, STOW_ROOT=str(ROOT), **more)


@functools.cache
def lscpu():
    return dict(line.split(":", 1) for line in run("lscpu").splitlines() if ":" in line)


def is_held():
    return "STOW_ISA" in os.environ


def has_bf16():
    return "avx512_bf16" in lscpu()["Flags"].split() and not is_held()


def machine():
    info = lscpu()
    flags = info["Flags"].split()
    isa = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    held = ", all held to AVX2" if is_held() else ""
    return f"{info['Model name'].strip()}, {info['CPU(s)'].strip()} cores, {', '.join(isa)}{held}"


def step_results(text):
    """{(config, dtype): {who: {...}}} of what compare prints; ends the command where a contestant has no row."""
    results, failed, key = {}, [], None
    row = re.compile(r"  (.{15}) +([\d.]+) s/step +(\d+) tok/s  compile +([\d.]+) s  memory planned +"
                     r"(\d+) process +(\d+) MiB  losses (.*)")
    for line in text.splitlines():
        if re.fullmatch(r"(\w+) (f32|bf16)", line):
            key = tuple(line.split())
            results[key] = {}
        elif m := row.match(line):
            who, step, tokens, compile_s, planned, process, losses = m.groups()
            results[key][who.strip()] = dict(step=float(step), tokens=int(tokens), compile=float(compile_s),
                                             planned=int(planned), process=int(process), losses=losses)
        elif m := re.match(r"  losses +(\S+) relative", line):
            results[key]["apart"] = m.group(1)
        elif key and line.startswith("  ") and not line.startswith("  ratio "):
            failed.append(f"{' '.join(key)}: {line[2:17].strip()}: {line[17:].strip()}")
    # Where all are held to AVX2, bf16 of PyTorch takes minutes a step, and is left out.
    dtypes = ("f32",) if is_held() and not any(dtype == "bf16" for _, dtype in results) else ("f32", "bf16")
    for config, dtype in itertools.product(CONFIGS, dtypes):
        found = results.get((config, dtype), {})
        failed += [f"{config} {dtype}: {who}: no row" for who in ("jax", "torch", "stowage")
                   if who not in found and not any(f.startswith(f"{config} {dtype}: {who}: ") for f in failed)]
    if failed:
        raise SystemExit("no results of\n  " + "\n  ".join(failed))
    return results


def peers(result):
    return {n: r for n, r in result.items() if n not in ("stowage", "apart")}


def losses_apart(result):
    """The most that our losses differ from any peer's, relative: as compare says of JAX's, and of each peer's as
    printed, to five digits."""
    def values(who):
        return [float(x) for x in result[who]["losses"].split()]
    return max(float(result["apart"]), *(abs(a - b) / abs(b) for who in peers(result)
                                         for a, b in zip(values("stowage"), values(who))))


def verdict(value, goal, at_most=False):
    return "yes" if (value <= goal if at_most else value >= goal) else "**no**"


def ready(result):
    """How many times faster than JAX compiles; of a hundredth of a second at least."""
    return result["jax"]["compile"] / max(result["stowage"]["compile"], 0.01)


def step_table(results):
    yield "| config | who | tokens/s | compile s | planned MiB | process MiB | losses |"
    yield "|---|---|---|---|---|---|---|"
    for (config, dtype), result in results.items():
        for who, r in result.items():
            if who == "apart":
                continue
            yield (f"| {config} {dtype} | {who} | {r['tokens']} | {r['compile']:.2f} | {r['planned'] or '-'} |"
                   f" {r['process'] or '-'} | {r['losses']} |")


def verdict_table(results):
    yield ("| config | tokens/s, of the better peer | goal | met |"
           f" losses apart, of the farther peer (at most {goals.APART:g}) |"
           f" ready, times faster than JAX (at least {goals.READY}) |")
    yield "|---|---|---|---|---|---|"
    for (config, dtype), result in results.items():
        ours, rivals = result["stowage"], dict(peers(result))
        goal = goals.STEP[config]
        if dtype == "bf16":  # of whatever is best in either dtype
            goal = goals.STEP_BF16
            for name, r in peers(results.get((config, "f32"), {})).items():
                rivals[name + " f32"] = r
        ratio = ours["tokens"] / max(r["tokens"] for r in rivals.values())
        met = verdict(ratio, goal)
        if dtype == "bf16" and not has_bf16():
            own = ours["tokens"] / results[config, "f32"]["stowage"]["tokens"]
            met, goal = verdict(own, goals.WIDENED), f"{goals.WIDENED} of our f32, which is {own:.2f}"
        yield f"| {config} {dtype} | {ratio:.2f} | {goal} | {met} | {losses_apart(result):.1e} | {ready(result):.0f} |"


def widened_table():
    """bf16 beside f32, ours alone, where the machine has no products of bf16."""
    yield f"| config | f32 tokens/s | bf16 | of f32 (at least {goals.WIDENED}) | met |"
    yield "|---|---|---|---|---|"
    for config in CONFIGS:
        f32, bf16 = (bench_step(config, dtype, 2)["tokens_per_s"] for dtype in ("f32", "bf16"))
        yield f"| {config} | {f32:.0f} | {bf16:.0f} | {bf16 / f32:.2f} | {verdict(bf16 / f32, goals.WIDENED)} |"


def measured(config, policy):
    """The peak in MiB and the profile of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        common = ["--set", f"memory.policy={policy}", "--json", out]
        run(BUILD / "stowage", "bench", "step", "--config", config, "--steps", "1", *common, env=environment())
        found = json.loads(out.read_text())
        assert found["peak_bytes"] == found["measured_peak_bytes"], found
        run(BUILD / "stowage", "profile", f"data/bench/{config}.toml", *common, env=environment(OMP_NUM_THREADS="1"))
        profile = json.loads(out.read_text())
    profile["least"] = sum(r["least_seconds"] for r in profile["by_op"])
    profile["tokens"] = found["tokens_per_s"] * found["step_s"]
    return found["peak_bytes"] / MIB, profile


def all_measured(rounds=2):
    """{(config, policy): (peak in MiB, profile)}: policies turn about, the quickest round of each counts; the best
    product of any of them is what a product reaches."""
    runs = {}
    for config in CONFIGS:
        turns = [(p, measured(config, p)) for _ in range(rounds) for p in POLICIES]
        for policy in POLICIES:
            runs[config, policy] = min((m for p, m in turns if p == policy), key=lambda m: m[1]["least"])
    return runs


def use_best_rate(runs, products):
    """Judges every step by the best rate of a product that one thread reached anywhere in this run, ours or oneDNN's."""
    rates = [p["product_flops_per_s"] for _, p in runs.values()]
    for line in products[2:]:
        _, dtype, ours, theirs, _ = (cell.strip() for cell in line.split("|")[1:-1])
        if dtype == "f32":
            rates += [1e9 * float(ours), 1e9 * float(theirs)]
    for _, p in runs.values():
        p["product_flops_per_s"] = max(rates)


def has_tiles():
    return "amx_bf16" in lscpu()["Flags"].split() and not is_held()


def product_rate(m, n, k, layout, **held):
    """FLOP/s of a product of f32 on every core, ours or oneDNN's, whichever is more."""
    r, = benchmarks("gemm_bench", str(len(os.sched_getaffinity(0))), str(m), str(n), str(k), layout, "f32", **held)
    return 1e9 * max(r["GFLOP/s"], r["oneDNN"])


def clock_ratios(flops, rounds=5):
    """The step of medium by the clock on every core, times the best rate of a product on as many (ours or oneDNN's),
    over its FLOPs: measured turn about, as the machine's own speed changes with the minutes; the median of rounds.
    And the same with the best rate of vector units, where products of f32 run on tiles else."""
    def rates():
        held = [{}, dict(STOW_ISA="avx512")] if has_tiles() else [{}]
        return [product_rate(2048, 768, 768, "nn", **h) for h in held]
    ratios = []
    before = rates()
    for _ in range(rounds):
        step = bench_step("medium", "f32", 3)["step_s"]
        after = rates()
        ratios.append([step * max(pair) / flops for pair in zip(before, after)])
        before = after
    return [statistics.median(column) for column in zip(*ratios)]


def medium_bound(p, rows):
    """What medium takes of its FLOPs at the best product rate where its products and its attention reach that, and its
    row programs the rate of a loop of AdamW's traffic; one thread."""
    loop = 1e9 * float([line for line in rows if line.startswith("| adamw | 1 |")][0].split("|")[7])
    best = p["product_flops_per_s"]
    seconds = sum(r["bytes"] / loop if r["name"].startswith("rows") else r["flops"] / best for r in p["by_op"])
    return seconds * best / p["flops"]


def bench_step(config, dtype, steps, *more):
    return json.loads(run(BUILD / "stowage", "bench", "step", "--config", config, "--dtype", dtype, "--steps", str(steps),
                          *more, "--json", "-", env=environment()).splitlines()[-1])


def memory_table(results, runs):
    yield ("| config | JAX MiB | " + " | ".join(POLICIES) +
           f" | saving all | at most | met | in {100 * goals.MORE_TIME:.0f} % more time | at most | met |")
    yield "|---|---|" + "---|" * len(POLICIES) + "---|---|---|---|---|---|"
    for config in CONFIGS:
        jax = results[config, "f32"]["jax"]
        time = runs[config, "save_all"][1]["least"]
        share = {p: runs[config, p][0] / jax["planned"] for p in POLICIES}
        slower = {p: runs[config, p][1]["least"] / time - 1 for p in POLICIES}
        budget = min(share[p] for p in POLICIES if slower[p] <= goals.MORE_TIME)
        cells = " | ".join(f"{runs[config, p][0]:.0f} ({100 * slower[p]:+.0f} %)" for p in POLICIES)
        yield (f"| {config} | {jax['planned']} | {cells} | {share['save_all']:.3f} | {goals.SAVE_ALL[config]} |"
               f" {verdict(share['save_all'], goals.SAVE_ALL[config], True)} | {budget:.3f} | {goals.BUDGET[config]} |"
               f" {verdict(budget, goals.BUDGET[config], True)} |")


def profile_tables(runs, clock, *of_vectors):
    yield ""
    yield (f"By the clock on every core, medium takes {clock:.2f} times its FLOPs at the best rate of a product there (at most "
           f"{goals.MEDIUM_TIME}), turn about.")
    for ratio in of_vectors:
        yield (f"Of the best rate of vector units there (`STOW_ISA=avx512`: products of f32 run on tiles of bf16 else, in three "
               f"parts, docs/decisions/0014) it takes {ratio:.2f} times.")
    for config in CONFIGS:
        p = runs[config, "save_all"][1]
        bound = p["flops"] / p["product_flops_per_s"]
        yield ""
        yield (f"{config}: {1e3 * p['least']:.0f} ms, {p['least'] / bound:.2f} times its {1e-9 * p['flops']:.0f} GFLOP at "
               f"the {1e-9 * p['product_flops_per_s']:.0f} GFLOP/s that the best product reaches; triad "
               f"{1e-9 * p['triad_bytes_per_s']:.0f} GB/s.")
        yield ""
        yield "| op | ms | share | GFLOP/s | GB/s |"
        yield "|---|---|---|---|---|"
        for r in sorted(p["by_op"], key=lambda r: -r["least_seconds"])[:6]:
            s = r["least_seconds"]
            rate = f"{1e-9 * r['flops'] / s:.0f}" if r["flops"] else "-"
            yield f"| {r['name']} | {1e3 * s:.1f} | {100 * s / p['least']:.1f} % | {rate} | {1e-9 * r['bytes'] / s:.0f} |"


def attention_table(python, rounds=3):
    """Heads of 64 under a causal mask, ours and PyTorch's turn about; the best of all turns counts."""
    yield ("| batch x heads x sequence | dtype | ours forward ms | PyTorch | times faster | ours backward ms | PyTorch |"
           " times faster |")
    yield "|---|---|---|---|---|---|---|---|"
    row = re.compile(r"forward +([\d.]+) ms.*backward +([\d.]+) ms")
    shapes = ((4, 12, 512), (2, 12, 1024), (1, 12, 2048), (1, 4, 4096), (1, 2, 8192))
    for (batch, heads, length), dtype in itertools.product(shapes, ("f32", "bf16")):
        case = [str(n) for n in (1, batch, heads, heads, length, length, 64)] + ["causal", dtype]
        turns = []
        for _ in range(rounds):
            ours = [r["best_ms"] for r in benchmarks("attention_bench", *case)]
            peer = row.search(run(python, ROOT / "bench/attention_peer.py", *case)).groups()
            turns.append([float(ms) for ms in (*ours, *peer)])
        forward, backward, peer_forward, peer_backward = (min(column) for column in zip(*turns))
        yield (f"| {batch} x {heads} x {length} | {dtype} | {forward:.1f} | {peer_forward:.1f} | {peer_forward / forward:.2f} |"
               f" {backward:.1f} | {peer_backward:.1f} | {peer_backward / backward:.2f} |")


def update_seconds(config, rows):
    """The least that AdamW takes: gradient, two moments and weight read, the last three written, at the
    rate of a loop of that traffic on every core."""
    n = int(re.search(r"model: (\d+) parameters", run(BUILD / "stowage", "plan", f"data/bench/{config}.toml",
                                                      env=environment()))[1])
    rate = float([line for line in rows if line.startswith("| adamw |")][-1].split("|")[7])
    return 7 * 4 * n / (1e9 * rate)


def head_products(p, most_bytes):
    """(FLOP, seconds, tokens at a time) of vocab's head on every core: its three products for as many tokens at a
    time as planning saving all within `most_bytes` leaves room for, each at the better of our rate and oneDNN's."""
    def peak(tokens):
        return bench_step("vocab", "f32", 1, "--set", f"train.loss_chunk={tokens}",
                          "--set", "memory.policy=save_all")["peak_bytes"]
    tokens = round(p["tokens"])
    at_a_time = next(n for n in (tokens >> i for i in range(8)) if peak(n) <= most_bytes)
    flops = 2 * tokens * VOCAB_WORDS * VOCAB_DIM
    rates = [product_rate(at_a_time, VOCAB_WORDS, VOCAB_DIM, "nn"),
             product_rate(at_a_time, VOCAB_DIM, VOCAB_WORDS, "nt"),
             product_rate(VOCAB_DIM, VOCAB_WORDS, at_a_time, "tn")]
    return 3 * flops, sum(flops / rate for rate in rates), at_a_time


def allowed(name, results, runs, rows):
    """What nothing but the products, at the best rate on every core, would reach against the better peer;
    with the update, which waits for the norm of all gradients; and with the head at the rates of its shapes,
    in no fewer chunks than its goal for memory asks.
    Returns whether any of that keeps the goal out of reach, and an item of a list for each bound; none but for f32."""
    config, dtype = name.split()
    if dtype != "f32":
        return "", []
    p = runs[config, "save_all"][1]
    cores = len(os.sched_getaffinity(0))
    seconds = p["flops"] / (cores * p["product_flops_per_s"])
    update = update_seconds(config, rows)
    bounds = [(seconds, f"only its {1e-9 * p['flops']:.0f} GFLOP of products take time, and they run at the best rate of any "
                        "product."),
              (seconds + update, "the update of the weights runs at the rate of a loop of its traffic.")]
    if config == "vocab":
        most = goals.SAVE_ALL["vocab"] * results["vocab", "f32"]["jax"]["planned"] * MIB
        flops, head, at_a_time = head_products(p, most)
        bounds.append(((p["flops"] - flops) / (cores * p["product_flops_per_s"]) + head + update,
                       "the three products of its head run at the better of our rates and oneDNN's for their shapes on every"
                       f" core, {at_a_time} tokens at a time, as many as the goal for memory allows."))
    best = max(r["tokens"] for r in peers(results[config, dtype]).values())
    ratios = [p["tokens"] / s / best for s, _ in bounds]
    items = [f"  - {ratio:.2f}: {text}" for ratio, (_, text) in zip(ratios, bounds)]
    return judged(min(ratios), goals.STEP[config]), items


def judged(bound, goal):
    return ("The goal is above the last of these upper bounds," if bound < goal else
            "None of these upper bounds forbids the goal,") + " each of which includes the assumptions above it:"


def limits(results, runs, rows):
    """What is known to limit the goals that are missed, in sentences. The table marks all missed goals."""
    for line in verdict_table(results):
        if "**no**" in line:
            name, ratio, goal = (cell.strip() for cell in line.split("|")[1:4])
            said, bounds = allowed(name, results, runs, rows)
            if bounds:
                yield f"- {name} is {ratio} times as fast as the better peer; the goal is {goal}. {said}"
                yield from bounds
    medium = runs["medium", "save_all"][1]
    over = medium["least"] * medium["product_flops_per_s"] / medium["flops"]
    if over > goals.MEDIUM_TIME:
        yield (f"- On one thread, medium takes {over:.2f} times the time of its FLOPs at the best product rate; "
               f"{goals.MEDIUM_TIME} is the goal."
               f" It would take {medium_bound(medium, rows):.2f} times if products and attention reached that rate, and row"
               " programs the rate of a loop of their traffic.")
    in_caches = {}  # of one thread, by program
    for line in rows[2:]:
        name, threads, rate, triad, *_, in_cache, _ = (cell.strip() for cell in line.split("|")[1:])
        in_caches.setdefault(name, float(in_cache or "nan"))
        if "**no**" in line:
            on = "one thread" if threads == "1" else f"{threads} threads"
            yield (f"- {name} on {on} moves {rate} GB/s; {100 * goals.TRIAD:.0f} % of the triad's {triad} is the goal."
                   f" One thread moves {in_caches[name]:.1f} of rows in its second cache, where memory does not limit it.")


def benchmarks(program, *arguments, **held):
    """What Google Benchmark measured, one dict a benchmark."""
    return json.loads(run(BUILD / "bench" / program, *arguments, "--benchmark_format=json",
                          env=environment(**held)))["benchmarks"]


def product_table():
    yield "| product (batch x M x N x K, layout) | dtype | ours GFLOP/s | oneDNN | of oneDNN |"
    yield "|---|---|---|---|---|"
    shapes = [(m, n, k, layout) for layout, m, n, k in (
        ("nn", 2048, 768, 768), ("nn", 2048, 2048, 768), ("nt", 2048, 768, 2048), ("tn", 768, 2048, 2048),
        ("nn", 1024, 65536, 512), ("nt", 1024, 512, 65536), ("tn", 512, 65536, 1024),
        ("nn", 4096, 768, 256), ("nt", 4096, 256, 768), ("tn", 256, 768, 4096))]
    for dtype in ("f32", "bf16") if has_bf16() else ("f32",):  # oneDNN has none of bf16 elsewhere
        for m, n, k, layout in shapes:
            r, = benchmarks("gemm_bench", "1", str(m), str(n), str(k), layout, dtype)
            yield (f"| 1 x {m} x {n} x {k} {layout} | {dtype} | {r['GFLOP/s']:.1f} | {r['oneDNN']:.1f} |"
                   f" {r['of_oneDNN']:.2f} |")


def small_product_table():
    """Few rows, few columns and batches of small products; no goal but that none is forgotten."""
    yield "| product (batch x M x N x K, layout) | ours GFLOP/s | oneDNN | of oneDNN |"
    yield "|---|---|---|---|"
    for layout, (batch, m, n, k) in itertools.product(("nn", "nt"), (
            (1, 1, 4096, 4096), (1, 4096, 1, 4096), (1, 4, 4096, 4096), (1, 12, 4096, 4096), (1, 16, 4096, 4096),
            (1, 64, 4096, 4096), (1, 64, 64, 64), (512, 64, 64, 64), (2048, 16, 16, 16), (64, 1, 512, 64))):
        r, = benchmarks("gemm_bench", "1", str(m), str(n), str(k), layout, "f32", str(batch))
        yield f"| {batch} x {m} x {n} x {k} {layout} | {r['GFLOP/s']:.1f} | {r['oneDNN']:.1f} | {r['of_oneDNN']:.2f} |"


def streamed_triad(rates):
    one, two = (r["GB/s"] for r in rates if r["name"].startswith("triad_non_temporal"))
    return f"A triad whose stores go past the caches moves {one:.1f} GB/s on one thread and {two:.1f} on two."


def row_table(rates):
    yield f"| program | threads | GB/s | triad | of the triad | {goals.TRIAD} | a loop of the same traffic | in cache |"
    yield "|---|---|---|---|---|---|---|---|"
    for r in rates:
        if "of_triad" in r:
            name, threads = re.match(r"(\w+)/threads:(\d+)", r["name"]).groups()
            goal = "-" if name.startswith("embedding") else verdict(r["of_triad"], goals.TRIAD)  # rows far apart
            yield (f"| {name.replace('_', ' ')} | {threads} | {r['GB/s']:.1f} | {r['triad']:.1f} | {r['of_triad']:.2f} |"
                   f" {goal} | {r['stream']:.1f} |"
                   f" {format(r['in_cache'], '.1f') if 'in_cache' in r else ''} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--rounds", default="2")
    ap.add_argument("--steps", default="3")
    ap.add_argument("--machine", default=lscpu()["Model name"].strip() + (" held to AVX2" if is_held() else ""),
                    help="the section's heading")
    ap.add_argument("--note", default="", help="a sentence on the state of the machine")
    ap.add_argument("--compare", type=pathlib.Path, help="output of a run of ../shared/peers/compare")
    ap.add_argument("--compile", action="store_true", help="adds compiled PyTorch to the peers")
    ap.add_argument("--isa", choices=["avx2"], help="holds ours and the peers to it")
    o = ap.parse_args()
    if o.compile and o.compare:
        ap.error("--compile has no effect with --compare: nobody is run")
    if o.isa:
        os.environ.update(AVX2_ONLY)
    if o.compare:
        text = o.compare.read_text()
    else:
        text = run(ROOT.parent / "shared/peers/compare", "--configs", ",".join(CONFIGS), "--dtypes", "f32,bf16",
                   "--rounds", o.rounds, "--steps", o.steps, *([] if o.compile else ["--no-compile"]), ok=(0, 1))
        (BUILD / "compare.txt").write_text(text)
    results = step_results(text)
    widened = [] if has_bf16() else list(widened_table())
    runs = all_measured()
    products, small, rates = list(product_table()), list(small_product_table()), benchmarks("rows_bench")
    use_best_rate(runs, products)
    clock = clock_ratios(runs["medium", "save_all"][1]["flops"])
    rows = list(row_table(rates))
    python = run("bash", "-c", 'echo "${STOW_PEERS:-$HOME/.cache/stowage-peers}/bin/python"').strip()
    attention = list(attention_table(python))
    versions = run(python, "-c", "import jax, torch; print('JAX', jax.__version__, 'and PyTorch', torch.__version__)")
    steps, memory = list(step_table(results)), list(memory_table(results, runs))
    intro = (f"**{datetime.date.today()}**, commit {run('git', 'rev-parse', '--short', 'HEAD').strip()}. {machine()}; "
             f"{versions.strip()}. {o.note}").strip()
    table = [*machine_table.step_rows(list(verdict_table(results)), steps, widened),
             *machine_table.memory_rows(steps, memory),
             *machine_table.product_rows(products, small),
             *machine_table.attention_rows(attention),
             *machine_table.row_program_rows(rows, streamed_triad(rates)),
             *machine_table.profile_rows(list(profile_tables(runs, *clock)))]
    page = ROOT / "docs/benchmarks.md"
    page.write_text(machine_table.with_section(page.read_text(), o.machine, intro, table,
                                                list(limits(results, runs, rows))))


if __name__ == "__main__":
    main()
