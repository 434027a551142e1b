"""Writes optax_values.json: ten steps of optax for tests/unit/optim/optimizers_test.cpp.

Run with optax 0.2.8 and JAX 0.10 on a CPU: JAX_PLATFORMS=cpu python make_optax_values.py > optax_values.json
The names of the cases are those of the table in the test, which says the same in C++.
"""
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(0)
STEPS = 10


def short(x):
    return [float(str(np.float32(v))) for v in np.asarray(x, np.float32).reshape(-1)]


def tree(scale):
    return {"a": {"b": rng.standard_normal(4).astype(np.float32) * scale,
                  "w": rng.standard_normal((6, 4)).astype(np.float32) * scale},
            "s": rng.standard_normal((2, 3, 5)).astype(np.float32) * scale}


def flat(t):
    return [short(t["a"]["b"]), short(t["a"]["w"]), short(t["s"])]


params = tree(0.5)
grads = [tree(1.0) for _ in range(STEPS)]
hurt = [jax.tree.map(np.copy, g) for g in grads]
for i in (2, 3, 6):
    hurt[i]["a"]["w"][1, 2] = np.nan if i != 3 else np.inf

w_only = {"a": {"b": False, "w": True}, "s": False}
ramp = optax.linear_schedule(0.1, 0.01, 6)
stacked = {"a": {"b": None, "w": optax.contrib.MuonDimensionNumbers(0, 1)},
           "s": optax.contrib.MuonDimensionNumbers(1, 2)}
three = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037))

cases = {
    "sgd": optax.sgd(0.1),
    "sgd_momentum": optax.sgd(0.1, 0.9),
    "sgd_nesterov": optax.sgd(ramp, 0.9, True),
    "adam": optax.adam(0.05),
    "adam_options": optax.adam(0.05, 0.8, 0.99, 1e-5, 1e-4),
    "adam_nesterov": optax.adam(0.05, nesterov=True),
    "adam_mu_bf16": optax.adam(0.05, mu_dtype=jnp.bfloat16),
    "adamw": optax.adamw(0.05, weight_decay=0.1),
    "adamw_mask": optax.adamw(ramp, weight_decay=0.1, mask=w_only),
    "adamw_decay_schedule": optax.adamw(0.05, weight_decay=ramp),
    "lion": optax.lion(0.01),
    "lion_options": optax.lion(ramp, 0.8, 0.95, weight_decay=0.2, mask=w_only),
    "rmsprop": optax.rmsprop(0.02),
    "rmsprop_centered": optax.rmsprop(0.02, centered=True, decay=0.8, eps=1e-4),
    "rmsprop_momentum": optax.rmsprop(0.02, momentum=0.9, nesterov=True, eps_in_sqrt=False,
                                      bias_correction=True, initial_scale=0.5),
    "adafactor": optax.adafactor(0.1),
    "adafactor_factored": optax.adafactor(ramp, min_dim_size_to_factor=3),
    "adafactor_options": optax.adafactor(
        0.1, min_dim_size_to_factor=3, decay_rate=0.7, multiply_by_parameter_scale=False,
        clipping_threshold=0.5, momentum=0.9, weight_decay_rate=0.01, weight_decay_mask=w_only),
    "adafactor_bare": optax.adafactor(clipping_threshold=None, factored=False),
    "muon": optax.contrib.muon(0.05),
    "muon_options": optax.contrib.muon(
        0.05, three, 3, 0.9, weight_decay=0.1, nesterov=False, adam_b1=0.8, adam_b2=0.99,
        adam_weight_decay=0.2, adam_learning_rate=0.01, consistent_rms=0.2),
    "muon_mask": optax.contrib.muon(
        0.05, weight_decay=0.1, weight_decay_mask={"a": {"b": True, "w": True}, "s": False}),
    "muon_stacked": optax.contrib.muon(0.05, adaptive=True, muon_weight_dimension_numbers=stacked),
    "clip": optax.chain(optax.clip(0.5), optax.sgd(0.1)),
    "clip_by_global_norm": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    "clip_by_global_norm_wide": optax.chain(optax.clip_by_global_norm(1e3), optax.sgd(0.1)),
    "ema": optax.chain(optax.ema(0.9), optax.scale(-0.1)),
    "masked": optax.chain(optax.masked(optax.trace(0.9), w_only), optax.scale(-0.1)),
    "selective": optax.selective_transform(optax.adamw(0.05), freeze_mask=w_only),
    "partition": optax.partition(
        {"x": optax.sgd(0.1, 0.9), "y": optax.adam(0.05)},
        {"a": {"b": "x", "w": "y"}, "s": "x"}),
    "multi_steps": optax.MultiSteps(optax.adam(0.05), 3).gradient_transformation(),
    "multi_steps_sum": optax.MultiSteps(optax.sgd(ramp, 0.9), 4,
                                        use_grad_mean=False).gradient_transformation(),
    "apply_if_finite": optax.apply_if_finite(optax.adam(0.05), 5),
}


def run(opt, gs):
    p, state, seen = params, opt.init(params), {}

    # Op by op: inside jit XLA keeps bf16 results in f32 where it pleases.
    def step(g, p, state):
        u, state = opt.update(g, state, p)
        return optax.apply_updates(p, u), state

    for i, g in enumerate(gs):
        p, state = step(g, p, state)
        if i + 1 in (3, STEPS):
            seen[str(i + 1)] = flat(p)
    return seen


schedules = {
    "constant": optax.constant_schedule(0.3),
    "linear": optax.linear_schedule(0.1, 1.0, 10, 5),
    "linear_down": optax.linear_schedule(1.0, 0.1, 7),
    "polynomial": optax.polynomial_schedule(1.0, 0.1, 2.5, 20, 3),
    "piecewise_constant": optax.piecewise_constant_schedule(1.0, {5: 0.5, 20: 0.1}),
    "exponential": optax.exponential_decay(1.0, 10, 0.5, 4),
    "exponential_stairs": optax.exponential_decay(1.0, 10, 0.5, staircase=True, end_value=0.2),
    "exponential_growth": optax.exponential_decay(0.1, 10, 2.0, end_value=0.5),
    "cosine": optax.cosine_decay_schedule(1.0, 30),
    "cosine_options": optax.cosine_decay_schedule(2.0, 30, 0.1, 1.5),
    "warmup_cosine": optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 40, 0.1),
    "warmup_cosine_options": optax.warmup_cosine_decay_schedule(0.2, 1.0, 5, 30, 0.05, 2.0),
    "linear_onecycle": optax.linear_onecycle_schedule(40, 1.0),
    "linear_onecycle_options": optax.linear_onecycle_schedule(33, 2.0, 0.2, 0.7, 10.0, 100.0),
    "cosine_onecycle": optax.cosine_onecycle_schedule(40, 1.0),
    "cosine_onecycle_options": optax.cosine_onecycle_schedule(37, 2.0, 0.4, 10.0, 50.0),
    "join": optax.join_schedules([optax.constant_schedule(1.0),
                                  optax.linear_schedule(0.5, 0.0, 10),
                                  optax.constant_schedule(0.25)], [7, 25]),
}
counts = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 19, 20, 21, 23, 25, 27, 30, 31, 34, 35,
          37, 39, 40, 41, 50, 100, 1000]

ema = params
for g in grads:
    ema = optax.incremental_update(g, ema, 0.1)

json.dump({
    "shapes": [[4], [6, 4], [2, 3, 5]],
    "params": flat(params),
    "grads": [flat(g) for g in grads],
    "hurt": [[i, float(hurt[i]["a"]["w"][1, 2]).hex()] for i in (2, 3, 6)],
    "cases": {name: run(opt, hurt if name == "apply_if_finite" else grads)
              for name, opt in cases.items()},
    "counts": counts,
    "schedules": {name: short([f(jnp.int32(c)) for c in counts]) for name, f in schedules.items()},
    "global_norm": short(optax.global_norm(grads[0]))[0],
    "incremental_update": flat(ema),
}, sys.stdout, separators=(",", ":"))
