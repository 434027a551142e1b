"""Writes llama_steps.json: losses of a small Llama's first steps as JAX and optax train it.

  python tests/data/make_llama_steps.py > tests/data/llama_steps.json
Weights and tokens come from formulas that the test has too; see tests/unit/train/step_run_test.cpp.
"""
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

MODEL = dict(vocab=256, dim=32, layers=2, heads=4, kv_heads=2, ffn=48, batch=3, seq=20)
STEPS = 5


def weight(number, shape):
    """Element i of leaf `number`, in the order of the test's tree."""
    i = np.arange(np.prod(shape), dtype=np.float64)
    return jnp.asarray((0.05 * np.sin(1.7 * i + 0.3 * i * i + number)).reshape(shape), jnp.float32)


def first_weights(m):
    d, f, layers, v = m["dim"], m["ffn"], m["layers"], m["vocab"]
    g = d // m["heads"] * m["kv_heads"]
    per_layer = [(d, d), (d, g), (d, g), (d, d), (d, f), (d, f), (f, d), (d,), (d,)]
    shapes = [(v, d)] + [(layers, *s) for s in per_layer] + [(d,), (d, v)]
    leaves = [weight(n, s) for n, s in enumerate(shapes)]
    for n in (8, 9, 10):  # the norms
        leaves[n] = 1 + leaves[n]
    return leaves


def normed(x, w):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5) * w).astype(x.dtype)


def turned(x):  # [B, T, H, D]: halves (a, b) become (a cos - b sin, b cos + a sin)
    t, d = x.shape[1], x.shape[3]
    angle = jnp.arange(t)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2) / d)
    cos, sin = (f(angle)[None, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def loss(leaves, tokens, m, dtype):
    embed, wq, wk, wv, wo, w1, w3, w2, n1, n2, norm, head = (x.astype(dtype) for x in leaves)
    x = embed[tokens[:, :-1]]
    b, t = x.shape[:2]
    split = lambda y, h: y.reshape(b, t, h, m["dim"] // m["heads"])
    for i in range(m["layers"]):
        h = normed(x, n1[i])
        q, k, v = split(h @ wq[i], m["heads"]), split(h @ wk[i], m["kv_heads"]), split(h @ wv[i], m["kv_heads"])
        a = jax.nn.dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + a.reshape(b, t, -1) @ wo[i]
        h = normed(x, n2[i])
        x = x + (jax.nn.silu(h @ w1[i]) * (h @ w3[i])) @ w2[i]
    logits = (normed(x, norm) @ head).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def losses(dtype):
    m = MODEL
    tokens = jnp.asarray((np.arange(m["batch"] * (m["seq"] + 1)) * 37 % 251).reshape(m["batch"], -1))
    leaves = first_weights(m)
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=0.1))
    state, found = rule.init(leaves), []
    for _ in range(STEPS):
        value, grads = jax.value_and_grad(loss)(leaves, tokens, m, dtype)
        updates, state = rule.update(grads, state, leaves)
        leaves = optax.apply_updates(leaves, updates)
        found.append(float(value))
    return found


print(json.dumps({"versions": {"jax": jax.__version__, "optax": optax.__version__},
                  "f32": losses(jnp.float32), "bf16": losses(jnp.bfloat16)}, indent=1))
