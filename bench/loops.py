#!/usr/bin/env python3
"""Loops over a few numbers beside JAX: the same iterations on one core, turn about.

  bench/loops.py [--core N] [--rounds N]

Runs build/release/bench/loops_bench (ninja -C build/release loops_bench) and its twin here, each in a process of its
own on one core. Times loops of 1000 and of 5000 iterations, the least of 300 runs each. Prints nanoseconds of an
iteration, which are the difference by 4000, and the ratio of whole calls of 1000 iterations.
Needs JAX in the Python that runs it.
"""
import argparse
import os
import pathlib
import sys
import time

from programs import rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEW, MANY, RUNS = 1000, 5000, 300


def peer():
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax import lax
    f, i32, where = jnp.float32, jnp.int32, jnp.where

    def opened(body):
        return lambda n: lambda x: lax.while_loop(lambda c: c[0] < n, lambda c: [c[0] + 1] + body(c[1:]), x)

    def counted(body):
        return lambda n: lambda x: lax.fori_loop(0, n, body, x)

    def scanned(body):
        def step(c, x):
            new = body(c, x)
            return new, new[0]
        return lambda n: lambda x: lax.scan(step, x, jnp.arange(n).astype(f) * .001)

    def affine(x):
        return x * .99 + .1

    def chains(c):
        return [x * (.99 - .2 * k) + .1 for k, x in enumerate(c)]

    def turns(c):
        return [a * .9 + b * .1 for a, b in zip(c, c[1:])] + [c[-1] * .9 - c[0] * .1]

    def choice(i, c):
        y = c[0] * 1.5 + .1
        return [where(y > 2, y - 1.3, y * abs(y)) + i.astype(f) * 1e-6]

    def bisection(i, c):
        m = (c[0] + c[1]) * .5
        above = m * m * m - m * 2 - 5 > 0
        return [where(above, c[0], m), where(above, m, c[1])]

    def runge_kutta(i, c):
        def g(y):
            return y * (1 - y) * .5
        y, k1 = c[0], g(c[0])
        k2 = g(y + k1 * .05)
        k3 = g(y + k2 * .05)
        return [y + (k1 + k2 * 2 + k3 * 2 + g(y + k3 * .1)) * (.1 / 6)]

    def oscillator(i, c):
        x, v = c[0] + c[1] * .005, c[1] - c[0] * .005
        return [c[0] + v * .01, c[1] - x * .01]

    def pendulum(i, c):
        v = c[1] + .01 * (-9.8 * jnp.sin(c[0]) - .1 * c[1])
        return [c[0] + .01 * v, v]

    four = [f(1), f(2), f(3), f(4)]
    eight = jnp.full(8, 1.5, f)
    cases = {
        "open, 1 value": (opened(chains), [i32(0), f(1)]),
        "open, 2 values": (opened(chains), [i32(0), f(1), f(2)]),
        "open, 4 values": (opened(chains), [i32(0)] + four),
        "open, 2 dependent": (opened(turns), [i32(0), f(1), f(2)]),
        "open, 4 dependent": (opened(turns), [i32(0)] + four),
        "counted, 1 value": (counted(lambda i, c: chains(c)), [f(1)]),
        "counted, 4 dependent": (counted(lambda i, c: turns(c)), four),
        "scan, 1 value": (scanned(lambda c, x: [c[0] * .9 + x]), [f(1)]),
        "scan, 2 values": (scanned(lambda c, x: [c[0] * .9 + x, c[1] * .5 + c[0]]), [f(1), f(2)]),
        "chains of several dtypes": (opened(lambda c: [
            affine(c[0]), jnp.maximum(jnp.minimum(c[1] + .3, 10), -5), c[2] + 3]), [i32(0), f(1), f(2), i32(3)]),
        "bool and choice": (opened(lambda c: [where(c[1], c[0] * .5 + .1, c[0] * 1.25), jnp.logical_not(c[1])]),
                            [i32(0), f(1), jnp.bool_(True)]),
        "number beside 8": (opened(lambda c: [affine(c[0]), c[1] * .99 + c[0]]), [i32(0), f(1), eight]),
        "8 numbers": (counted(lambda i, c: [affine(c[0])]), [eight]),
        "choice": (counted(choice), [f(.5)]),
        "cond": (counted(lambda i, c: lax.cond(c[0] > 2, lambda c: [c[0] - 1.3], lambda c: [c[0] * 1.5 + .1], c)),
                 [f(2)]),
        "Newton": (counted(lambda i, c: [c[0] - (c[0] * c[0] * c[0] - 2 * c[0] - 5) / (3 * c[0] * c[0] - 2)]), [f(2)]),
        "bisection": (counted(bisection), [f(0), f(5)]),
        "Collatz": (opened(lambda c: [where(c[0] % 2 == 0, c[0] // 2, c[0] * 3 + 1)]), [i32(0), i32(77031)]),
        "linear congruence": (counted(lambda i, c: [c[0] * 1664525 + 1013904223]), [i32(1)]),
        "Runge-Kutta": (counted(runge_kutta), [f(.1)]),
        "oscillator": (counted(oscillator), [f(1), f(0)]),
        "pendulum, a sine": (counted(pendulum), [f(1), f(1)]),
        "loop of 10 in a loop": (lambda n: counted(
            lambda i, c: lax.fori_loop(0, 10, lambda i, c: chains(c), c))(n // 10), [f(1)]),
        "loop of 3 in a loop": (counted(lambda i, c: lax.fori_loop(0, 3, lambda i, c: turns(c), c)), [f(1), f(2)]),
    }
    for name, (loop, init) in cases.items():
        times = []
        for steps in (FEW, MANY):
            compiled, least = jax.jit(loop(steps)).lower(init).compile(), 1e9
            for _ in range(RUNS):
                start = time.perf_counter()
                jax.block_until_ready(compiled(init))
                least = min(least, time.perf_counter() - start)
            times.append(least)
        print(f"{name}|{times[0]:.9f}|{times[1]:.9f}", flush=True)


def run(command, core):
    return {name: (float(few), float(many)) for name, (few, many) in rows(command, core).items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--core", type=int, default=0)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    o = ap.parse_args()
    if o.as_peer:
        return peer()
    ours, theirs = [], []
    for _ in range(o.rounds):
        ours.append(run([ROOT / "build/release/bench/loops_bench"], o.core))
        theirs.append(run([sys.executable, __file__, "--as-peer"], o.core))
    print("| body | ours ns | JAX ns | ours / JAX | of 1000 iterations, called |\n|---|---|---|---|---|")
    for name in ours[0]:
        (few, many), (their_few, their_many) = ([min(r[name][k] for r in side) for k in (0, 1)]
                                                for side in (ours, theirs))
        mine, its = ((b - a) * 1e9 / (MANY - FEW) for a, b in ((few, many), (their_few, their_many)))
        print(f"| {name} | {mine:.2f} | {its:.2f} | {mine / its:.2f} | {few / their_few:.2f} |")


if __name__ == "__main__":
    main()
