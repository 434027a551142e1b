"""Writes jax_values.json: inputs and results of JAX for tests/conformance/jax_values_test.cpp.

Run with JAX 0.10 on a CPU: JAX_PLATFORMS=cpu python make_jax_values.py > jax_values.json
"""
import json
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

rng = np.random.default_rng(0)
names = {"float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "bool": "bool",
         "int64": "i64", "uint8": "u8", "uint64": "u64", "int8": "i8", "bfloat16": "bf16",
         "float16": "f16"}


def dump(x):
    x = jnp.asarray(x)
    flat = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        flat = flat.astype(np.float64)
    short = (lambda v: float(str(np.float32(v)))) if x.dtype != jnp.float64 else (lambda v: v)
    data = [v if not isinstance(v, float) else short(v) if np.isfinite(v) else str(v)
            for v in flat.reshape(-1).tolist()]
    return {"dtype": names[str(x.dtype)], "shape": list(x.shape), "data": data}


cases = []


def case(name, f, *inputs, tol=1e-6, grad=True):
    inputs = [jnp.asarray(x) for x in inputs]
    out = f(*inputs)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    c = {"name": name, "inputs": [dump(x) for x in inputs], "outputs": [dump(y) for y in outs],
         "tol": tol}
    if grad and all(jnp.issubdtype(y.dtype, jnp.floating) for y in outs) and \
            jnp.issubdtype(inputs[0].dtype, jnp.floating):
        def loss(x):
            y = f(x, *inputs[1:])
            y = y if not isinstance(y, (tuple, list)) else y[0]
            return jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)))
        c["grad"] = dump(jax.grad(loss)(inputs[0]))
    cases.append(c)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 30.0, -30.0, 1e-8],
                   np.float32)
x, y = f32(3, 4), f32(4)
pos = np.abs(f32(3, 4)) + np.float32(0.1)
ints = rng.integers(-9, 9, (3, 4)).astype(np.int32)
div = np.array([3, -3, 2, -5], np.int32)

for name, f in [("exp", jnp.exp), ("expm1", jnp.expm1), ("tanh", jnp.tanh), ("sin", jnp.sin),
                ("cos", jnp.cos), ("abs", jnp.abs), ("sign", jnp.sign), ("floor", jnp.floor),
                ("ceil", jnp.ceil), ("round", jnp.round), ("square", jnp.square),
                ("erf", lax.erf), ("logistic", jax.nn.sigmoid), ("relu", jax.nn.relu),
                ("silu", jax.nn.silu), ("gelu", jax.nn.gelu), ("softplus", jax.nn.softplus),
                ("gelu_exact", lambda a: jax.nn.gelu(a, approximate=False)),
                ("softmax", jax.nn.softmax), ("log_softmax", jax.nn.log_softmax),
                ("reciprocal", jnp.reciprocal), ("isfinite", jnp.isfinite), ("isnan", jnp.isnan)]:
    case(name, f, x, tol=2e-6)
    if name not in ("sin", "cos", "softmax", "log_softmax", "gelu_exact"):
        case(name + "_special", f, special, tol=2e-6,
             grad=name not in ("reciprocal", "abs", "sign", "gelu", "silu", "softplus", "erf",
                               "logistic", "tanh", "exp", "expm1", "square", "floor", "ceil",
                               "round", "relu"))
for name, f in [("log", jnp.log), ("log1p", jnp.log1p), ("sqrt", jnp.sqrt), ("rsqrt", lax.rsqrt)]:
    case(name, f, pos)
case("erf_inv", lax.erf_inv, np.tanh(x) * np.float32(0.99), tol=4e-6)
for name, f in [("add", jnp.add), ("subtract", jnp.subtract), ("multiply", jnp.multiply),
                ("divide", jnp.divide), ("maximum", jnp.maximum), ("minimum", jnp.minimum),
                ("remainder", jnp.remainder), ("fmod", jnp.fmod),
                ("floor_divide", jnp.floor_divide), ("logaddexp", jnp.logaddexp)]:
    case(name, f, x, y, tol=3e-6, grad=name not in ("floor_divide",))
    if name not in ("logaddexp",):
        case(name + "_int", f, ints, div, grad=False)
case("divide_ints_of_bytes", jnp.divide, ints.astype(np.uint8), div.astype(np.uint8), grad=False)
case("remainder_u32", jnp.remainder, ints.astype(np.uint32), np.array([3, 5, 7, 9], np.uint32),
     grad=False)
case("pow", jnp.power, pos, y, tol=3e-6)
case("pow3", lambda a: a ** 3, x)
case("pow_minus2", lambda a: a ** -2, pos, tol=3e-6)
case("clip", lambda a: jnp.clip(a, -0.5, 0.5), x)
case("where", lambda a, b: jnp.where(a > 0, a, b), x, y)
case("left_shift", lambda a: jnp.left_shift(a, 3), ints, grad=False)
case("right_shift", lambda a: jnp.right_shift(a, 1), ints, grad=False)
case("right_shift_u32", lambda a: jnp.right_shift(a, np.uint32(1)), ints.astype(np.uint32),
     grad=False)
case("bf16_times_two", lambda a: a * 2.1, x.astype(jnp.bfloat16))
case("i8_sum", lambda a: jnp.sum(a).astype(jnp.int32), ints.astype(np.int8), grad=False)

z = f32(2, 3, 4)
for name, f in [("sum", jnp.sum), ("mean", jnp.mean), ("prod", jnp.prod), ("max", jnp.max),
                ("min", jnp.min), ("var", jnp.var), ("logsumexp", jax.nn.logsumexp)]:
    case(name, lambda a: f(a), z, tol=3e-6)
    case(name + "_axes", lambda a: f(a, axis=(0, 2)), z, tol=3e-6)
    case(name + "_keepdims", lambda a: f(a, axis=-1, keepdims=True), z, tol=3e-6)
case("max_ties", lambda a: jnp.max(a, axis=1), np.array([[1, 1, 0], [2, 2, 2]], np.float32))
case("logsumexp_inf", lambda a: jax.nn.logsumexp(a, axis=1),
     np.array([[-np.inf, -np.inf], [np.inf, 0], [0, -np.inf]], np.float32), grad=False)
case("var_ddof", lambda a: jnp.var(a, axis=0, ddof=1), z, tol=3e-6)
case("argmax", lambda a: jnp.argmax(a, axis=1).astype(jnp.int32), z, grad=False)
case("argmin_all", lambda a: jnp.argmin(a).astype(jnp.int32), z, grad=False)
case("cumsum", lambda a: jnp.cumsum(a, axis=1), z)
case("cumsum_reverse", lambda a: lax.cumsum(a, axis=1, reverse=True), z)
case("sort", lambda a: jnp.sort(a, axis=-1), z)
case("argsort", lambda a: jnp.argsort(a, axis=0).astype(jnp.int32), z, grad=False)
case("any", lambda a: jnp.any(a > 1, axis=0), z, grad=False)
case("all", lambda a: jnp.all(a > -1, axis=0), z, grad=False)

case("transpose", lambda a: jnp.transpose(a, (2, 0, 1)), z)
case("reshape", lambda a: jnp.reshape(a, (4, -1)), z)
case("concatenate", lambda a, b: jnp.concatenate([a, b], axis=1), x, f32(3, 2))
case("stack", lambda a, b: jnp.stack([a, b], axis=-1), x, f32(3, 4))
case("split", lambda a: jnp.split(a, 2, axis=1), x, grad=False)
case("flip", lambda a: jnp.flip(a, 1), x)
case("roll", lambda a: jnp.roll(a, -1, 1), x)
case("tile", lambda a: jnp.tile(a, (2, 3)), x)
case("repeat", lambda a: jnp.repeat(a, 2, axis=0), x)
case("pad", lambda a: jnp.pad(a, ((1, 0), (0, 2)), constant_values=9), x)
case("pad_general", lambda a: lax.pad(a, np.float32(1), [(-1, 1, 1), (2, -1, 0)]), x)
case("slice_step", lambda a: a[:, 3:0:-2], x)
case("slice_to_nothing", lambda a: a[2:1], x, grad=False)
case("index", lambda a: a[1, :, None, -2], z)
case("tril", lambda a: jnp.tril(a, -1), x)
case("triu", lambda a: jnp.triu(a, 1), x)
case("dynamic_slice", lambda a, i: lax.dynamic_slice(a, (i, np.int32(1)), (2, 2)), x, np.int32(9))
case("dynamic_update_slice",
     lambda a, u, i: lax.dynamic_update_slice(a, u, (i, np.int32(1))), x, f32(2, 2), np.int32(9))
index = np.array([[0, 2], [1, -1]], np.int32)
case("take", lambda a, i: jnp.take(a, i, axis=1), x, index)
case("take_bytes", lambda a, i: jnp.take(a, i, axis=0), f32(300, 2), np.array([0, 255], np.uint8))
case("take_along_axis", lambda a, i: jnp.take_along_axis(a, i, axis=1), x,
     np.array([[0, 3], [1, 1], [-1, 2]], np.int32))
case("one_hot", lambda i: jax.nn.one_hot(i, 4, dtype=jnp.float32), np.array([0, 3, 5, -1], np.int32),
     grad=False)
case("arange", lambda a: a + jnp.arange(7, -2, -3, dtype=jnp.int32), np.zeros(3, np.int32),
     grad=False)
case("eye", lambda a: a + jnp.eye(3, 4, dtype=jnp.float32), x)

for n, (a, b) in enumerate([((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)),
                            ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
                            ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5)),
                            ((1, 2, 3, 4), (1, 2, 4, 5)), ((2, 3, 4), (4,))]):
    case(f"matmul_{n}", jnp.matmul, f32(*a), f32(*b), tol=3e-6)
case("outer", jnp.outer, y, f32(3))
specs = ["ij,jk->ik", "ij,jk", "bij,bjk->bik", "ijk,lj->kil", "ii->i", "ii", "ij->", "ij->ji",
         "...ij,jk->...ik", "i,j->ij", "ij,ij->i", "ij,kj,kl->il", "iij,j->ij", "ij,kl->"]
shapes = [[(2, 3), (3, 4)], [(2, 3), (3, 4)], [(2, 3, 4), (2, 4, 5)], [(2, 3, 4), (5, 3)], [(3, 3)],
          [(3, 3)], [(2, 3)], [(2, 3)], [(2, 3, 4), (4, 5)], [(2,), (3,)], [(2, 3), (2, 3)],
          [(2, 3), (4, 3), (4, 5)], [(3, 3, 2), (2,)], [(2, 3), (4, 5)]]
for n, (spec, shape) in enumerate(zip(specs, shapes)):
    case(f"einsum_{n} {spec}", lambda *a: jnp.einsum(spec, *a), *[f32(*s) for s in shape], tol=5e-6)

q, k, v = f32(2, 5, 4, 8), f32(2, 5, 2, 8), f32(2, 5, 2, 8)
case("attention", lambda a, b, c: jax.nn.dot_product_attention(a, b, c, is_causal=True), q, k, v,
     tol=1e-5)
case("attention_scaled", lambda a, b, c: jax.nn.dot_product_attention(a, b, c, scale=0.25), q, k, v,
     tol=1e-5)


def cross_entropy(logits, targets):
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jax.nn.logsumexp(logits, -1) - picked


case("cross_entropy", cross_entropy, f32(2, 3, 7), rng.integers(0, 7, (2, 3)).astype(np.int32),
     tol=3e-6)


def rms_norm(a, w):
    return a * lax.rsqrt(jnp.mean(a * a, -1, keepdims=True) + 1e-6) * w


def layer_norm(a, w, b):
    c = a - a.mean(-1, keepdims=True)
    return c * lax.rsqrt(jnp.mean(c * c, -1, keepdims=True) + 1e-5) * w + b


case("rms_norm", rms_norm, x, y, tol=3e-6)
case("layer_norm", layer_norm, x, y, f32(4), tol=1e-5)
case("scan", lambda c, xs: lax.scan(lambda h, t: (jnp.tanh(h * t), h + t), c, xs), y, f32(5, 4),
     tol=3e-6)
case("scan_reverse", lambda c, xs: lax.scan(lambda h, t: (jnp.tanh(h * t), h + t), c, xs,
                                            reverse=True), y, f32(5, 4), tol=3e-6)
case("second_derivative", jax.vmap(jax.grad(jax.grad(lambda a: jnp.sin(a * a)))), y, tol=1e-5,
     grad=False)

seed = 0x0123456789abcdef




def raw(key):
    return jax.random.key_data(key)


for name, f in [
        ("key", lambda key: raw(key)),
        ("split", lambda key: raw(jax.random.split(key, 5))),
        ("fold_in", lambda key: raw(jax.random.fold_in(key, 77))),
        ("bits", lambda key: jax.random.bits(key, (3, 5))),
        ("bits_u8", lambda key: jax.random.bits(key, (7,), jnp.uint8)),
        ("bits_u64", lambda key: jax.random.bits(key, (3, 2), jnp.uint64)),
        ("uniform", lambda key: jax.random.uniform(key, (4, 3), jnp.float32)),
        ("uniform_range", lambda key: jax.random.uniform(key, (5,), jnp.float32, -2.0, 3.0)),
        ("uniform_bf16", lambda key: jax.random.uniform(key, (5,), jnp.bfloat16)),
        ("uniform_f16", lambda key: jax.random.uniform(key, (5,), jnp.float16)),
        ("uniform_f64", lambda key: jax.random.uniform(key, (5,), jnp.float64)),
        ("bernoulli", lambda key: jax.random.bernoulli(key, 0.3, (9,)))]:
    with jax.enable_x64(True):  # the seed has 64 bits
        made = jax.random.key(seed)
    with jax.enable_x64(name.endswith("64")):
        cases.append({"name": "random_" + name, "inputs": [], "outputs": [dump(f(made))], "tol": 0})
with jax.enable_x64(True):
    key = jax.random.key(seed)
cases.append({"name": "random_normal", "inputs": [], "tol": 3e-7,
              "outputs": [dump(jax.random.normal(key, (64,), jnp.float32))]})
cases.append({"name": "random_gumbel", "inputs": [], "tol": 1e-6,
              "outputs": [dump(jax.random.gumbel(key, (9,), jnp.float32))]})
cases.append({"name": "random_categorical", "inputs": [dump(f32(6, 5))], "tol": 0, "outputs": []})
logits = jnp.asarray(np.array(cases[-1]["inputs"][0]["data"], np.float32).reshape(6, 5))
cases[-1]["outputs"] = [dump(jax.random.categorical(key, logits).astype(jnp.int32))]

print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
