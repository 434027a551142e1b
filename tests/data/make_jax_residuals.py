"""Writes jax_residuals.json: what JAX's saved_residuals lists, for tests/unit/passes/residuals_test.cpp.

Run with JAX 0.10 on a CPU: JAX_PLATFORMS=cpu python make_jax_residuals.py > jax_residuals.json
"""
import json
import re
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name

try:
    from jax.ad_checkpoint import saved_residuals
except ImportError:
    from jax._src.ad_checkpoint import saved_residuals

P = jax.checkpoint_policies


def mlp(x, w1, w2):
    h1 = name(jnp.dot(x, w1), "h1")
    h2 = name(jnp.sin(h1), "h2")
    return jnp.sin(jnp.dot(h2, w2))


def heads(q, k):  # a product with a batch axis between two without
    s = jnp.exp(jnp.einsum("bij,bkj->bik", jnp.sin(q), jnp.sin(k)))
    return jnp.sin(jnp.dot(s, jnp.ones((5, 2))))


def layer(c, w):
    return jnp.sin(name(jnp.dot(c, w), "h"))


def f32(*shape):
    return jnp.ones(shape, jnp.float32)


policies = {
    "nothing_saveable": None,
    "everything_saveable": P.everything_saveable,
    "dots_saveable": P.dots_saveable,
    "dots_with_no_batch_dims_saveable": P.dots_with_no_batch_dims_saveable,
    "save_only_these_names(h1)": P.save_only_these_names("h1"),
    "save_any_names_but_these(h1)": P.save_any_names_but_these("h1"),
    "save_anything_except_these_names(h1)": P.save_anything_except_these_names("h1"),
    "both(dots, h2)": P.save_from_both_policies(P.dots_saveable, P.save_only_these_names("h2")),
    "custom(exp and sin)": lambda prim, *_, **__: prim.name in ("exp", "sin"),
}

cases = {}


def case(title, f, *args):
    rows = []
    for aval, source in saved_residuals(f, *args):
        source = re.sub(r" from .*", "", source) if not source.startswith("from") else source
        source = re.sub(r"^from the argument.*", "argument", source)
        source = re.sub(r"^output of jitted function.*", "output of jit", source)
        rows.append([aval.str_short(short_dtypes=True), source])
    cases[title] = sorted(rows)


case("mlp", mlp, f32(4, 8), f32(8, 16), f32(16, 2))
case("heads", heads, f32(3, 4, 6), f32(3, 5, 6))
case("scan", lambda c, w: lax.scan(lambda c, w: (layer(c, w), None), c, w)[0],
     f32(4, 8), f32(5, 8, 8))
for title, policy in policies.items():
    case(f"mlp {title}", jax.checkpoint(mlp, policy=policy), f32(4, 8), f32(8, 16), f32(16, 2))
    if "h1" not in title and "h2" not in title:
        case(f"heads {title}", jax.checkpoint(heads, policy=policy), f32(3, 4, 6), f32(3, 5, 6))
for title, policy in {"nothing_saveable": None, "everything_saveable": P.everything_saveable,
                      "dots_saveable": P.dots_saveable,
                      "save_only_these_names(h)": P.save_only_these_names("h"),
                      "save_anything_except_these_names(h)":
                          P.save_anything_except_these_names("h")}.items():
    body = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    case(f"scan {title}", lambda c, w: lax.scan(lambda c, w: (body(c, w), None), c, w)[0],
         f32(4, 8), f32(5, 8, 8))

print(json.dumps(cases, indent=1))
