#!/usr/bin/env python3
"""Ordinary training programs beside JAX: the same step on one core, turn about.

  bench/programs.py [--core N] [--rounds N] [--json FILE]

Runs build/release/bench/programs_bench (ninja -C build/release programs_bench) and its twin here, each in a process of
its own on one core. Prints the least time of a step, ours over JAX's, how far the losses of the 21st step
are apart, and both peaks (JAX: arguments, results and temporaries of its compiled program, aliases off).
Needs JAX in the Python that runs it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, REPORTED = 200, 20


def peer():
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax import lax

    def normal(seed, shape, scale=1.0):
        return scale * jax.random.normal(jax.random.key(seed), shape)

    def integers(seed, shape, n):
        return jax.random.randint(jax.random.key(seed), shape, 0, n)

    log_softmax, relu, sigmoid = jax.nn.log_softmax, jax.nn.relu, jax.nn.sigmoid

    def contrastive(w, d):
        def tower(x, up, down):
            h = relu(x @ up) @ down
            return h / jnp.sqrt(jnp.sum(h * h, -1, keepdims=True) + 1e-6)
        logits = tower(d[0], w[0], w[1]) @ tower(d[1], w[2], w[3]).T / 0.1
        return -jnp.mean(jnp.diagonal(log_softmax(logits, 1))) - jnp.mean(jnp.diagonal(log_softmax(logits, 0)))

    def ctc(w, d):
        batch, states = 16, 41
        pick = jax.vmap(jax.vmap(jnp.take), (0, None))
        emit = pick(log_softmax(d[0] @ w[0], -1), d[1])

        def shifted(a, by):
            return jnp.concatenate([jnp.full((batch, by), -1e30), a[:, :states - by]], 1)

        def step(a, e):
            two = jnp.where(d[2] > 0.5, shifted(a, 2), -1e30)
            return e + jnp.logaddexp(jnp.logaddexp(a, shifted(a, 1)), two), None
        first = jnp.concatenate([emit[0][:, :2], jnp.full((batch, states - 2), -1e30)], 1)
        last, _ = lax.scan(step, first, emit[1:])
        return -jnp.mean(jnp.logaddexp(last[:, 40:41], last[:, 39:40]))

    def crf(w, d):
        scores = d[0] @ w[0]
        last, _ = lax.scan(lambda a, e: (e + jax.nn.logsumexp(a[:, :, None] + w[1], 1), None), scores[0], scores[1:])
        return jnp.mean(jax.nn.logsumexp(last, 1))

    def embedding_bag(w, d):
        bags = jnp.take(w[0], d[0], axis=0).sum(1)
        return jnp.mean((relu(bags @ w[1]) @ w[2] - d[1]) ** 2)

    def control(w, d):
        def step(c, noise):
            x, cost = c
            u = jnp.tanh(x @ w[0] + w[1]) @ w[2]
            x = 0.99 * x + 0.01 * (jnp.tanh(x) @ d[0] + jnp.tanh(u) @ d[1] + noise)
            return (x, cost + jnp.sum(x * x) + 0.1 * jnp.sum(u * u)), None
        return lax.scan(step, (d[2], jnp.zeros(())), d[3])[0][1] / 1000

    def ode(w, d):
        h = 0.05

        def f(y):
            return jnp.tanh(y @ w[0] + w[1]) @ w[2]

        def step(y, _):
            a = f(y)
            b = f(y + h / 2 * a)
            c = f(y + h / 2 * b)
            return y + h / 6 * (a + 2 * b + 2 * c + f(y + h * c)), None
        return jnp.mean((lax.scan(step, d[0], jnp.arange(40))[0] - d[1]) ** 2)

    def cnn(w, d):
        h = d[0]
        for i in (0, 1):
            h = relu(lax.conv_general_dilated(h, w[i], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        log_p = log_softmax(h.reshape(32, -1) @ w[2], -1)
        return -jnp.mean(jnp.sum(log_p * jax.nn.one_hot(d[1], 10), -1))

    def gru(w, d):
        def step(h, x):
            z = sigmoid(x @ w[0] + h @ w[1])
            r = sigmoid(x @ w[2] + h @ w[3])
            n = jnp.tanh(x @ w[4] + (r * h) @ w[5])
            return z * h + (1 - z) * n, None
        return jnp.mean((lax.scan(step, jnp.zeros((32, 64)), d[0])[0] @ w[6] - d[1]) ** 2)

    def ppo(w, d):
        h = jnp.tanh(jnp.tanh(d[0] @ w[0]) @ w[1])
        log_p = log_softmax(h @ w[2], -1)
        ratio = jnp.exp(jnp.take_along_axis(log_p, d[1][:, None], 1).reshape(-1) - d[2])
        gain = jnp.mean(jnp.minimum(ratio * d[3], jnp.clip(ratio, 0.8, 1.2) * d[3]))
        value_loss = jnp.mean(((h @ w[3]).reshape(-1) - d[4]) ** 2)
        return -gain + 0.5 * value_loss + 0.01 * jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))

    def experts(w, d):
        best, which = lax.top_k(jax.nn.softmax(d[0] @ w[0], -1), 2)
        gates = jnp.sum(jax.nn.one_hot(which, 8) * best[:, :, None], 1)
        h = relu(jnp.einsum("td,edf->tef", d[0], w[1]))
        return jnp.mean((jnp.sum(jnp.einsum("tef,efd->ted", h, w[2]) * gates[:, :, None], 1) - d[0]) ** 2)

    at = jnp.arange(41)
    labels = jnp.where(at % 2 == 0, 0, 1 + at % 29)
    odd = (at % 2).astype(jnp.float32)
    programs = [
        ("contrastive", contrastive,
         [normal(1, (128, 256), .1), normal(2, (256, 64), .1), normal(3, (128, 256), .1), normal(4, (256, 64), .1)],
         [normal(5, (512, 128)), normal(6, (512, 128))]),
        ("CTC", ctc, [normal(1, (64, 30), .1)],
         [normal(2, (100, 16, 64)), labels + jnp.zeros((16, 41), jnp.int32), odd * jnp.ones((16, 41))]),
        ("CRF", crf, [normal(1, (64, 20), .1), normal(2, (20, 20), .1)], [normal(3, (60, 16, 64))]),
        ("embedding bag", embedding_bag, [normal(1, (20000, 64), .1), normal(2, (64, 64), .1), normal(3, (64, 1), .1)],
         [integers(4, (256, 32), 20000), normal(5, (256, 1))]),
        ("control", control, [normal(1, (4, 16), .3), jnp.zeros(16), normal(2, (16, 2), .3)],
         [normal(3, (4, 4), .3), normal(4, (2, 4), .3), normal(5, (8, 4)), normal(6, (1000, 8, 4))]),
        ("neural ODE", ode, [normal(1, (16, 64), .2), jnp.zeros(64), normal(2, (64, 16), .2)],
         [normal(3, (128, 16)), normal(4, (128, 16))]),
        ("CNN", cnn, [normal(1, (3, 3, 1, 16), .2), normal(2, (3, 3, 16, 32), .1), normal(3, (7 * 7 * 32, 10), .05)],
         [normal(4, (32, 28, 28, 1)), integers(5, (32,), 10)]),
        ("GRU", gru,
         [normal(1, (32, 64), .1), normal(2, (64, 64), .1), normal(3, (32, 64), .1), normal(4, (64, 64), .1),
          normal(5, (32, 64), .1), normal(6, (64, 64), .1), normal(7, (64, 1), .1)],
         [normal(8, (100, 32, 32)), normal(9, (32, 1))]),
        ("PPO", ppo, [normal(1, (32, 64), .1), normal(2, (64, 64), .1), normal(3, (64, 6), .1), normal(4, (64, 1), .1)],
         [normal(5, (2048, 32)), integers(6, (2048,), 6), jnp.full((2048,), -1.79), normal(7, (2048,)),
          normal(8, (2048,))]),
        ("mixture of experts", experts,
         [normal(1, (64, 8), .1), normal(2, (8, 64, 128), .1), normal(3, (8, 128, 64), .1)], [normal(4, (512, 64))]),
    ]
    for name, loss, weights, data in programs:
        def step(w, d, loss=loss):
            value, gradients = jax.value_and_grad(loss)(w, d)
            return [a - 0.001 * g for a, g in zip(w, gradients)], value
        compiled = jax.jit(step, donate_argnums=0).lower(weights, data).compile()
        m = compiled.memory_analysis()
        peak = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes
        least, reported = 1e9, 0
        for i in range(STEPS):
            start = time.perf_counter()
            weights, value = jax.block_until_ready(compiled(weights, data))
            least = min(least, time.perf_counter() - start)
            if i == REPORTED:
                reported = float(value)
        print(f"{name}|{least:.6f}|{reported:.7g}|{peak}")


def rows(command, core):
    """The lines that a command prints on one core, cut at bars, by their first part. bench/loops.py calls it too."""
    text = subprocess.run(["taskset", "-c", str(core), *map(str, command)], capture_output=True, text=True,
                          check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return {name: values for name, *values in (line.split("|") for line in text.splitlines())}


def run(command, core):
    return {name: (float(s), float(loss), int(peak)) for name, (s, loss, peak) in rows(command, core).items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--core", type=int, default=0)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--json")
    ap.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    o = ap.parse_args()
    if o.as_peer:
        return peer()
    ours, theirs = [], []
    for _ in range(o.rounds):
        ours.append(run([ROOT / "build/release/bench/programs_bench"], o.core))
        theirs.append(run([sys.executable, __file__, "--as-peer"], o.core))
    print("| program | ours ms | JAX ms | ours / JAX | losses apart | ours MiB | JAX MiB |\n|---|---|---|---|---|---|---|")
    lines = []
    for name, (_, loss, peak) in ours[0].items():
        a, b = (min(r[name][0] for r in side) for side in (ours, theirs))
        _, their_loss, their_peak = theirs[0][name]
        apart = abs(loss - their_loss) / abs(their_loss)
        lines.append({"program": name, "ours_s": a, "jax_s": b, "ratio": a / b, "losses_apart": apart,
                      "ours_bytes": peak, "jax_bytes": their_peak})
        print(f"| {name} | {a * 1e3:.3f} | {b * 1e3:.3f} | {a / b:.2f} | {apart:.0e} | {peak / 2**20:.2f} | "
              f"{their_peak / 2**20:.2f} |")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
