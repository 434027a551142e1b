"""Writes jax_functions.json: JAX's results and gradients for tests/conformance/jax_functions_test.cpp.

Run with JAX 0.10 on a CPU: JAX_PLATFORMS=cpu python make_jax_functions.py > jax_functions.json

A case: the function's name in the test's table, its inputs (names of arrays stored once), its
results, gradients of sum(first result * cos(0, 1, 2...)) by each float input, and what a number may
be off by: `ulp` roundings of its dtype, relative to the larger of the number and `scale`.
"""
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

rng = np.random.default_rng(7)
bf16 = jnp.bfloat16
names = {"float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "bool": "bool",
         "int64": "i64", "uint8": "u8", "uint64": "u64", "int8": "i8", "bfloat16": "bf16",
         "float16": "f16"}
arrays, ids, cases = {}, {}, []


def number(v, dtype):
    if isinstance(v, bool):
        return int(v)
    if not isinstance(v, float):
        return v
    if not np.isfinite(v):
        return str(v)
    v = v if dtype == "float64" else float(str(np.float32(v)))
    return int(v) if v == int(v) and abs(v) < 1000 and str(v) != "-0.0" else v


def dump(x):
    x = np.asarray(x)
    dtype = str(x.dtype)
    flat = x if dtype in ("bool",) or "int" in dtype else x.astype(np.float64)
    return {"dtype": names[dtype], "shape": list(x.shape),
            "data": [number(v, dtype) for v in flat.reshape(-1).tolist()]}


def stored(x):
    text = json.dumps(dump(x))
    if text not in ids:
        ids[text] = "x%d" % len(ids)
        arrays[ids[text]] = dump(x)
    return ids[text]


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


# `void`: where all terms are -inf JAX's gradients are NaN and ours 0 (docs/jax.md).
def case(name, f, *inputs, ulp=0, scale=0, grad=True, gulp=None, gscale=None, void=None):
    inputs = [np.asarray(x) for x in inputs]
    with jax.enable_x64(any(x.dtype.itemsize == 8 for x in inputs)):
        given = [jnp.asarray(x) for x in inputs]
        try:
            out = f(*given)
        except (TypeError, ValueError, NotImplementedError) as error:  # JAX refuses it
            print("refused:", name, [str(x.dtype) for x in inputs], str(error)[:80], file=sys.stderr)
            return
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        c = {"name": name, "inputs": [stored(x) for x in inputs],
             "outputs": [dump(y) for y in outs], "ulp": ulp, "scale": scale}
        if grad and is_float(outs[0]) and any(is_float(x) for x in given):
            def loss(*a):
                y = f(*a)
                y = y[0] if isinstance(y, (tuple, list)) else y
                w = jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))
                return jnp.sum(y * w)
            which = [i for i, x in enumerate(given) if is_float(x)]
            try:
                grads = jax.grad(loss, argnums=tuple(which))(*given)
            except (TypeError, ValueError, NotImplementedError) as error:
                print("no gradient:", name, str(error)[:80], file=sys.stderr)
                cases.append(c)
                return
            if void is not None:
                grads = [jnp.where(void, 0, g) for g in grads]
            c["gulp"] = 4 * ulp + 4 if gulp is None else gulp
            c["gscale"] = scale if gscale is None else gscale
            c["grads"] = {str(i): dump(g) for i, g in zip(which, grads)}
    cases.append(c)


def f32(*shape):
    return (rng.standard_normal(shape) * 1.5).astype(np.float32)


def ints(low, high, shape, dtype=np.int32):
    return rng.integers(low, high, shape).astype(dtype)


special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 30.0, -30.0,
                    1e-8, -1e-8, 1e-30, 1e37, -1e37, 80.0, -80.0, 1.5, 7.25, 1e10], np.float32)
some = f32(12)
empty = np.zeros((0, 3), np.float32)

# ---- unary ----
exact = ["abs", "sign", "floor", "ceil", "round", "trunc", "negative", "isnan", "isinf", "isfinite",
         "nan_to_num", "relu", "relu6", "hard_tanh", "logical_not", "square"]
unary = {n: getattr(jnp, n) for n in
         ["exp", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
          "exp2", "log2", "log10", "abs", "sign", "floor", "ceil", "round", "trunc", "square",
          "reciprocal", "negative", "isnan", "isinf", "isfinite", "nan_to_num", "logical_not"]}
unary |= {n: getattr(jnp, "arc" + n[1:]) for n in
          ["asin", "acos", "atan", "asinh", "acosh", "atanh"]}
unary |= {n: getattr(lax, n) for n in ["rsqrt", "erf", "erfc", "erf_inv", "logistic"]}
unary |= {n: getattr(nn, n) for n in
          ["relu", "relu6", "elu", "selu", "celu", "leaky_relu", "hard_tanh", "hard_sigmoid",
           "hard_silu", "silu", "gelu", "softplus", "log_sigmoid", "mish", "soft_sign",
           "squareplus"]}
unary["gelu_exact"] = lambda a: nn.gelu(a, approximate=False)
# What JAX itself rounds more than once or approximates.
rough = {"sinh": 30, "cosh": 60, "asinh": 16, "acosh": 30, "atanh": 16, "erf_inv": 20, "exp2": 60,
         "cbrt": 4, "tan": 16, "erf": 8, "erfc": 30, "gelu": 30, "gelu_exact": 30, "mish": 30,
         "asin": 8, "acos": 8, "atan": 8, "expm1": 8, "log1p": 8, "tanh": 8, "log_sigmoid": 16,
         "softplus": 16}
small = {"gelu", "gelu_exact", "mish", "silu", "squareplus", "celu", "elu", "selu"}
# Gradients that are compared to an absolute error: theirs or ours cancel.
cancelling = {"tanh", "soft_sign", "mish", "log_sigmoid", "logistic", "silu", "gelu", "gelu_exact"}
# Where gradients differ and ours is kept: relu's at NaN is 1 (JAX: 0); rsqrt's at -0 is inf (JAX
# -inf); squareplus' at squares that overflow is 0.5 or 1 (JAX NaN); acosh's at -1, where it has no
# value, is -inf (JAX inf). Those of celu and softplus at NaN are compared further down.
without = {"relu": [4], "celu": [4], "rsqrt": [1], "squareplus": [16, 17], "softplus": [4],
           "log_sigmoid": [4], "acosh": [6]}
for n, f in unary.items():
    ulp = 0 if n in exact else rough.get(n, 6)
    scale = 1 if n in small else 0
    gscale = 1 if n in cancelling else scale
    if n in without:
        case(n, f, special, ulp=ulp, scale=scale, grad=False)
        case(n, f, np.delete(special, without[n]), ulp=ulp, scale=scale, gscale=gscale)
    else:
        case(n, f, special, ulp=ulp, scale=scale, gscale=gscale)
    case(n, f, some, ulp=ulp, scale=max(scale, 0.1), gscale=max(gscale, 0.1))
    case(n, f, empty, ulp=ulp)
    if n != "exp2":  # JAX multiplies by log 2 in bf16
        case(n, f, special[:16].astype(bf16), ulp=0 if n in exact else 2, scale=scale, grad=False)
    wide = special[[1, 2, 4, 6, 7, 9, 13]].astype(np.float64)
    if n not in ("erf_inv",):
        case(n, f, wide, ulp=0 if n in exact else 4 * rough.get(n, 6), scale=scale, grad=False)
        case(n, f, some.astype(np.float16), ulp=0 if n in exact else 2, scale=1, grad=False)
for n in ["abs", "sign", "negative", "square", "floor", "round", "trunc", "exp", "sqrt", "isnan",
          "logical_not", "relu", "nan_to_num"]:
    case(n, unary[n], np.array([-7, 0, 3, -2**31, 2**31 - 1], np.int32), ulp=6)
    if n not in ("negative", "relu", "sign", "nan_to_num"):
        case(n, unary[n], np.array([True, False]), ulp=6)
    case(n, unary[n], np.array([0, 1, 200, 255], np.uint8), ulp=6)
edges = np.array([-2**31, -2**31 + 1, -7, -1, 0, 1, 2, 255, 2**31 - 1], np.int32)
for n, f in [("population_count", lax.population_count), ("clz", lax.clz),
             ("bitwise_not", jnp.bitwise_not), ("bitwise_count", jnp.bitwise_count)]:
    for dtype in (np.int32, np.uint32, np.int8, np.uint8, np.int64):
        case(n, f, edges.astype(dtype))

# ---- binary ----
points = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.5, 3.0, 0.7], np.float32)
fa, fb = [g.reshape(-1) for g in np.meshgrid(points, points)]
pa, pb = f32(4, 3), f32(3)
floats = {"add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "divide": jnp.divide,
          "maximum": jnp.maximum, "minimum": jnp.minimum, "remainder": jnp.remainder,
          "fmod": jnp.fmod, "floor_divide": jnp.floor_divide, "atan2": jnp.arctan2,
          "hypot": jnp.hypot, "logaddexp": jnp.logaddexp, "power": jnp.power, "div": lax.div,
          "rem": lax.rem, "nextafter": jnp.nextafter}
for n, f in floats.items():
    ulp = {"atan2": 8, "hypot": 8, "logaddexp": 8, "power": 8}.get(n, 0)
    flat = n in ("floor_divide", "nextafter")
    # Gradients of power, hypot and logaddexp at infinities and at zero are compared further down.
    case(n, f, fa, fb, ulp=ulp, grad=n not in ("power", "hypot", "nextafter", "atan2", "logaddexp"))
    if n not in ("div", "rem"):
        case(n, f, np.abs(pa) + np.float32(.1) if n == "power" else pa, pb, ulp=max(ulp, 2), scale=1,
             grad=not flat)
    case(n, f, fa.astype(bf16), fb.astype(bf16), ulp=0 if ulp == 0 else 2, grad=False)
    if n != "nextafter":
        case(n, f, fa.astype(np.float64), fb.astype(np.float64), ulp=4 * ulp, grad=False)
    if n not in ("div", "rem"):
        case(n, f, np.zeros((0, 3), np.float32), pb, ulp=ulp)
for n, f in [("equal", jnp.equal), ("not_equal", jnp.not_equal), ("less", jnp.less),
             ("less_equal", jnp.less_equal), ("greater", jnp.greater),
             ("greater_equal", jnp.greater_equal), ("isclose", jnp.isclose)]:
    case(n, f, fa, fb)
ipoints = np.array([-2**31, -7, -1, 0, 1, 3, 2**31 - 1], np.int32)
ia, ib = [g.reshape(-1) for g in np.meshgrid(ipoints, ipoints)]
upoints = np.array([0, 1, 3, 100, 200, 255], np.uint8)
ua, ub = [g.reshape(-1) for g in np.meshgrid(upoints, upoints)]
ba, bb = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
integers = {n: floats[n] for n in ["add", "subtract", "multiply", "divide", "maximum", "minimum"]}
integers |= {"div": lax.div, "rem": lax.rem, "remainder": jnp.remainder, "fmod": jnp.fmod,
             "floor_divide": jnp.floor_divide, "bitwise_and": jnp.bitwise_and,
             "bitwise_or": jnp.bitwise_or, "bitwise_xor": jnp.bitwise_xor, "less": jnp.less,
             "greater_equal": jnp.greater_equal, "equal": jnp.equal}
for n, f in integers.items():
    case(n, f, ia, ib, ulp=1)
    case(n, f, ua, ub, ulp=1)
    if n.startswith("bit") or n in ("add", "multiply", "maximum", "minimum", "less", "equal"):
        case(n, f, ba, bb)
case("power", jnp.power, np.array([2, -3, 0, 1, -1, 7, 0], np.int32),
     np.array([5, 3, 0, 40, 7, 2, 3], np.int32))
case("power", jnp.power, np.array([2, -3, 0.5], np.float32), np.array([5, 3, -2], np.int32), ulp=2)
counts = np.array([0, 1, 5, 7, 8, 31, 32, 40], np.int32)
for n, f in [("left_shift", jnp.left_shift), ("right_shift", jnp.right_shift),
             ("shift_right_logical", lax.shift_right_logical)]:
    for dtype in (np.int32, np.uint32, np.int8, np.uint8):
        case(n, f, np.array([-100, -1, 77, 100, -128, 127, -7, 5], np.int32).astype(dtype),
             counts.astype(dtype))
for n, f in [("logical_and", jnp.logical_and), ("logical_or", jnp.logical_or),
             ("logical_xor", jnp.logical_xor)]:
    case(n, f, ba, bb)
    case(n, f, fa, fb)
case("clip", lambda a: jnp.clip(a, -0.5, 1.0), special)
case("clamp", lambda a: lax.clamp(np.float32(-0.5), a, np.float32(1.0)), special)
case("where", lambda c, a, b: jnp.where(c, a, b), fa > 0, fa, fb)
case("where", lambda c, a, b: jnp.where(c, a, b), fa[:6].astype(np.int32), ia[:6],
     np.float32(2.5), grad=False)
case("integer_pow", lambda a: lax.integer_pow(a, 5), special, ulp=4)
case("integer_pow_minus3", lambda a: lax.integer_pow(a, -3), some, ulp=8)

# ---- reductions ----
z = f32(2, 3, 4)
odd = z.copy()
odd[0, 0, 0], odd[0, 1, 2], odd[1, 2, 3], odd[1, 0, 1] = np.nan, np.inf, -np.inf, -0.0
ties = np.array([[1, 1, 0], [2, 2, 2], [-1, -0.0, 0.0]], np.float32)
bytes_ = ints(0, 255, (3, 4), np.uint8)
reductions = {n: getattr(jnp, n) for n in
              ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin",
               "median", "count_nonzero"]} | {"logsumexp": nn.logsumexp}
for n, f in reductions.items():
    g = n not in ("any", "all", "argmax", "argmin", "count_nonzero")
    # A tie of a median or a maximum is a kink; var and std of infinities are NaN either way.
    case(n, lambda a: f(a), z, ulp=16, scale=1, grad=g)
    case(n + "_axis1", lambda a: f(a, axis=1), z, ulp=16, scale=1, grad=g)
    case(n + "_axis1", lambda a: f(a, axis=1), odd, ulp=16, scale=1, grad=False)
    case(n + "_keep", lambda a: f(a, axis=-1, keepdims=True), z, ulp=16, scale=1, grad=g)
    if n in ("sum", "prod", "max", "min", "mean", "logsumexp"):
        case(n + "_axis1", lambda a: f(a, axis=1), ties, ulp=16, scale=1)
    if n in ("sum", "prod", "mean", "any", "all", "logsumexp", "count_nonzero", "var"):
        case(n + "_axis1", lambda a: f(a, axis=1), np.zeros((2, 0, 3), np.float32), ulp=4)
    case(n + "_axis1", lambda a: f(a, axis=1), np.zeros((0, 2), np.float32), ulp=4)
    if n != "logsumexp":
        for x in (ints(-9, 9, (3, 4)), bytes_, ints(-100, 100, (3, 4), np.int8), bytes_ > 100):
            if not (n == "median" and x.dtype == bool):
                case(n + "_axis1", lambda a: f(a, axis=1), x, ulp=16, scale=1)
    case(n + "_axis1", lambda a: f(a, axis=1), z.astype(bf16), ulp=4, scale=1, grad=False)
    if n not in ("argmax", "argmin", "count_nonzero"):
        case(n + "_axis1", lambda a: f(a, axis=1), z[:, :, :1].astype(np.float64), ulp=64, scale=1,
             grad=False)
case("quantile", lambda a: jnp.quantile(a, 0.3, axis=1), z, ulp=8, scale=1)
case("var_ddof", lambda a: jnp.var(a, axis=1, ddof=1), z, ulp=16, scale=1)
for o in (0, 1, 2, 3, np.inf, -np.inf):
    case("norm_%s" % o, lambda a: jnp.linalg.norm(a, ord=o, axis=1), z, ulp=16, scale=1)
case("norm", jnp.linalg.norm, z[0], ulp=16, scale=1)

# ---- along an axis ----
for n, f in [("cumsum", lambda a, reverse=False: lax.cumsum(a, 1, reverse)),
             ("cumprod", lambda a, reverse=False: lax.cumprod(a, 1, reverse)),
             ("cummax", lambda a, reverse=False: lax.cummax(a, 1, reverse)),
             ("cummin", lambda a, reverse=False: lax.cummin(a, 1, reverse)),
             ("cumlogsumexp", lambda a, reverse=False: lax.cumlogsumexp(a, 1, reverse))]:
    case(n, f, z, ulp=16, scale=1)
    case(n + "_reverse", lambda a: f(a, reverse=True), z, ulp=16, scale=1)
    # At NaN and infinity JAX's gradients are those of its tree of additions.
    case(n, f, odd, ulp=16, scale=1, grad=False)
    case(n, f, np.zeros((2, 0, 3), np.float32))
    case(n, f, z.astype(bf16), ulp=16, scale=1, grad=False)
    if n != "cumlogsumexp":
        case(n, f, ints(-9, 9, (3, 4)))
zeros = z.copy()
zeros[0, 1, 0] = zeros[1, 0, 1] = zeros[1, 2, 1] = 0
case("cumprod", lambda a: lax.cumprod(a, 1), zeros, ulp=16, scale=1)
case("prod_axis1", lambda a: jnp.prod(a, axis=1), zeros, ulp=16, scale=1)
case("cumlogsumexp", lambda a: lax.cumlogsumexp(a, 1),
     np.array([[-np.inf, -np.inf, 0, 1], [80, -80, -np.inf, 3]], np.float32), ulp=16, scale=1,
     grad=False)
case("jnp_cumsum", lambda a: jnp.cumsum(a), bytes_)
case("jnp_cumprod", lambda a: jnp.cumprod(a, axis=0), bytes_ > 9)
case("diff", lambda a: jnp.diff(a, axis=1), z)
row = np.array([[3, np.nan, -0.0, 0.0, 3, -np.inf, np.inf, 1], [0, 0, 0, 1, -1, np.nan, np.nan, 2]],
               np.float32)
for x in (row, z, ints(0, 4, (3, 7)), bytes_, bytes_ > 99, z.astype(bf16), np.zeros((2, 0), np.int8)):
    case("sort", lambda a: jnp.sort(a), x)
    case("sort_descending", lambda a: jnp.sort(a, descending=True), x)
    case("argsort", lambda a: jnp.argsort(a).astype(jnp.int32), x)
    case("argsort_descending", lambda a: jnp.argsort(a, descending=True).astype(jnp.int32), x)
    if x.shape[-1] > 3 and x.dtype != bool:
        case("top_k", lambda a: lax.top_k(a, 3), x)
case("searchsorted", lambda a, v: jnp.searchsorted(a, v).astype(jnp.int32),
     np.array([1, 2, 2, 3, np.nan], np.float32), np.array([0, 2, 2.5, 9, np.nan], np.float32))
case("searchsorted_right", lambda a, v: jnp.searchsorted(a, v, side="right").astype(jnp.int32),
     np.array([1, 2, 2, 3], np.float32), np.array([[0, 2], [3, 9]], np.float32))


def running(a, b):
    def combine(x, y):
        return x[0] * y[0], x[1] * y[0] + y[1]
    return lax.associative_scan(combine, (a, b), axis=1)[1]


case("linear_scan", running, z, f32(2, 3, 4), ulp=16, scale=1)
case("associative_scan", running, z, f32(2, 3, 4), ulp=4, scale=1)
case("associative_scan_mul", lambda a: lax.associative_scan(jnp.multiply, a, reverse=True), f32(7))
case("associative_scan_max", lambda a: lax.associative_scan(jnp.maximum, a, axis=1), z)

# ---- windows ----
img = f32(2, 6, 5, 3)
win = (1, 3, 2, 1)
for n, init, op in [("sum", 0, lax.add), ("max", -np.inf, lax.max), ("min", np.inf, lax.min)]:
    i = np.float32(init)
    case(f"window_{n}", lambda a: lax.reduce_window(a, i, op, win, (1, 2, 2, 1), "SAME"), img,
         ulp=4, scale=1)
    case(f"window_{n}_valid", lambda a: lax.reduce_window(a, i, op, win, (1, 2, 1, 1), "VALID"), img,
         ulp=4, scale=1)
    case(f"window_{n}_odd",
         lambda a: lax.reduce_window(a, i, op, (2, 3), (2, 1), ((1, -1), (-2, 3)), (2, 1), (1, 2)),
         f32(5, 6), ulp=4, scale=1, grad=n == "sum")
    case(f"window_{n}_valid", lambda a: lax.reduce_window(a, i, op, win, (1, 2, 1, 1), "VALID"),
         np.where(rng.random((2, 6, 5, 3)) < .1, np.nan, np.round(img)).astype(np.float32),
         ulp=4, scale=1, grad=False)
case("window_max_valid", lambda a: lax.reduce_window(a, -np.float32(np.inf), lax.max, win,
                                                     (1, 2, 1, 1), "VALID"),
     np.round(img).astype(np.float32), gscale=1)
case("window_sum_1d", lambda a: lax.reduce_window(a, np.int32(0), lax.add, (3,), (2,), "SAME"),
     ints(-9, 9, (9,)))
case("avg_pool", lambda a: lax.reduce_window(a, np.float32(0), lax.add, (1, 2, 2, 1), (1, 2, 2, 1),
                                             "SAME") / 4, img, ulp=4, scale=1)

# ---- convolutions ----
convs = [
    ("conv_plain", dict(window_strides=(1, 1), padding="VALID"), (2, 3, 5, 6), (4, 3, 2, 3)),
    ("conv_same", dict(window_strides=(2, 2), padding="SAME"), (2, 3, 5, 6), (4, 3, 3, 3)),
    ("conv_same_lower", dict(window_strides=(2, 1), padding="SAME_LOWER"), (2, 3, 5, 6),
     (4, 3, 2, 2)),
    ("conv_dilated", dict(window_strides=(2, 1), padding=((2, -1), (-1, 3)), lhs_dilation=(2, 1),
                          rhs_dilation=(1, 2)), (1, 2, 5, 6), (3, 2, 2, 3)),
    ("conv_groups", dict(window_strides=(1,), padding="SAME", feature_group_count=2), (2, 4, 5),
     (6, 2, 3)),
    ("conv_batch_groups", dict(window_strides=(1,), padding="SAME", batch_group_count=2), (4, 3, 5),
     (6, 3, 3)),
    ("conv_nhwc", dict(window_strides=(1, 2), padding="SAME",
                       dimension_numbers=("NHWC", "HWIO", "NHWC")), (2, 5, 6, 3), (3, 2, 3, 4)),
    ("conv_hwcn", dict(window_strides=(1, 1), padding="VALID",
                       dimension_numbers=("HWCN", "OIWH", "NWHC")), (5, 6, 3, 2), (4, 3, 2, 3)),
]
for n, options, a, b in convs:
    f = lambda x, k: lax.conv_general_dilated(x, k, **options)
    case(n, f, f32(*a), f32(*b), ulp=32, scale=1)
    case(n, f, f32(*a).astype(bf16), f32(*b).astype(bf16), ulp=2, scale=4, grad=False)
case("conv_plain", lambda x, k: lax.conv_general_dilated(x, k, **convs[0][1]),
     ints(-9, 9, (1, 2, 3, 4)), ints(-9, 9, (2, 2, 2, 2)))
for p in ("SAME", "VALID"):
    case("conv_transpose_" + p,
         lambda x, k: lax.conv_transpose(x, k, (2, 3), p, dimension_numbers=("NHWC", "HWIO", "NHWC")),
         f32(1, 3, 4, 2), f32(3, 2, 2, 3), ulp=32, scale=1)
for m in ("full", "same", "valid"):
    case("convolve_" + m, lambda a, v: jnp.convolve(a, v, m), f32(7), f32(4), ulp=16, scale=1)

# ---- shapes ----
case("split3", lambda a: jnp.array_split(a, 3, axis=1), f32(2, 7))
case("unstack", lambda a: jnp.unstack(a, axis=1), z)
case("hstack", lambda a, b: jnp.hstack([a, b]), f32(3), f32(2))
case("vstack", lambda a, b: jnp.vstack([a, b]), f32(3), f32(2, 3))
case("tile", lambda a: jnp.tile(a, (2, 1, 3)), z[0], gscale=1)
case("repeat", lambda a: jnp.repeat(a, 3, axis=1), z, gscale=1)
case("roll", lambda a: jnp.roll(a, 5, 2), z)
case("flip", lambda a: jnp.flip(a, (0, 2)), z)
case("moveaxis", lambda a: jnp.moveaxis(a, 0, -1), z)
case("swapaxes", lambda a: jnp.swapaxes(a, 0, 2), z)
case("squeeze", lambda a: jnp.squeeze(a[None, :, :1]), z)
case("expand_dims", lambda a: jnp.expand_dims(a, (0, 2)), z)
case("tril", lambda a: jnp.tril(a, 1), z)
case("triu", lambda a: jnp.triu(a, -1), z)
case("tri", lambda a: a * jnp.tri(3, 4, -1), z)
for k in (-1, 0, 2):
    case("diag_%d" % k, lambda a: jnp.diag(a, k), f32(3))
    case("diag_%d" % k, lambda a: jnp.diag(a, k), z[0])
    case("diagonal_%d" % k, lambda a: jnp.diagonal(a, k, 1, 2), z)
    case("trace_%d" % k, lambda a: jnp.trace(a, k, 1, 2), z, ulp=4, scale=1)
case("linspace", lambda a: a + jnp.linspace(-1, 2.7, 7, dtype=jnp.float32), np.zeros(7, np.float32),
     ulp=2, scale=1)
case("linspace_open", lambda a: a + jnp.linspace(3, -1, 6, endpoint=False, dtype=jnp.float32),
     np.zeros(6, np.float32), ulp=2, scale=1)
case("meshgrid", lambda a, b, c: jnp.meshgrid(a, b, c), f32(2), f32(3), f32(4))
case("meshgrid_ij", lambda a, b: jnp.meshgrid(a, b, indexing="ij"), f32(2), f32(3))
case("one_hot", lambda i: nn.one_hot(i, 4, dtype=jnp.float32), np.array([0, 3, 4, -1], np.int32))
case("eye", lambda a: a * jnp.eye(3, 4), z)

# ---- indexing ----
i1, i2 = np.array([0, 2, -1, 5, -9], np.int32), np.array([[1], [3]], np.int32)
for mode in ("fill", "clip", "wrap"):
    case("take_" + mode, lambda a, i: jnp.take(a, i, axis=1, mode=mode), z, i1, gscale=1)
    case("take_" + mode, lambda a, i: jnp.take(a, i, axis=1, mode=mode), ints(0, 9, (2, 3, 4)), i1)
    case("take_" + mode, lambda a, i: jnp.take(a, i, axis=1, mode=mode), bytes_, i1)
    along = np.array([[0, 2, 5, -1], [-3, -4, 1, 1]], np.int32)[:, None, :]
    if mode != "wrap":
        case("take_along_" + mode, lambda a, i: jnp.take_along_axis(a, i, axis=1, mode=mode), z,
             along)
case("take_flat", lambda a, i: jnp.take(a, i), z, i1)
case("take_fill", lambda a, i: jnp.take(a, i, axis=1), bytes_ > 99, i1)
case("take_fill", lambda a, i: jnp.take(a, i, axis=1), np.zeros((2, 0), np.float32),
     np.zeros((0,), np.int32))
getters = {
    "index_rows": lambda a, i, j: a[i],
    "index_columns": lambda a, i, j: a[:, i],
    "index_both": lambda a, i, j: a[:, i, j],
    "index_apart": lambda a, i, j: a[i, :, j],
    "index_integer": lambda a, i, j: a[1, :, i],
    "index_between": lambda a, i, j: a[..., None, i],
    "index_sliced": lambda a, i, j: a[::-1, i, 1:3],
    "index_front": lambda a, i, j: a[i, None, j],
}
for n, f in getters.items():
    # Out of range both clamp, but JAX sends no gradient to the place that was read; ours does.
    case(n, f, z, i1, i2, grad=False)
    case(n, f, z, np.array([0, 1, -1, 0, -2], np.int32), np.array([[1], [0]], np.int32), gscale=1)
case("get_fill", lambda a, i: a.at[:, i].get(mode="fill"), z, i1, gscale=1)
places = {
    "all": lambda a, i, j: a.at[...],
    "one": lambda a, i, j: a.at[1, 2, -1],
    "slice": lambda a, i, j: a.at[1:, :2],
    "strided": lambda a, i, j: a.at[:, ::2, ::-2],
    "rows": lambda a, i, j: a.at[:, i],
    "apart": lambda a, i, j: a.at[i, :, j],
    "integer": lambda a, i, j: a.at[1, :, i],
    "sliced": lambda a, i, j: a.at[::-1, i, 1:3],
}
unique, other = np.array([2, 0, 7, -4], np.int32), np.array([[3], [1]], np.int32)
repeated = np.array([0, 2, 0, 0, 9], np.int32)
for n, f in places.items():
    shape = f(jnp.asarray(z), unique, other).get().shape
    v = f32(*shape)
    for op in ("set", "add", "multiply", "divide", "min", "max", "subtract"):
        # The quotient by several divisors rounds in another order; JAX has a gradient of products
        # only where places are promised to be different.
        more = {"unique_indices": True} if op in ("multiply", "divide") else {}
        case(f"at_{n}_{op}", lambda a, i, j, u: getattr(f(a, i, j), op)(u, **more), z, unique,
             other, v, ulp=4, scale=1 if op == "divide" else 0, gscale=8,
             grad=not more or n != "integer")  # there two places are one
for op in ("add", "min", "max"):
    case(f"at_rows_{op}", lambda a, i, j, u: getattr(a.at[:, i], op)(u), z, repeated, other,
         f32(2, 5, 4), ulp=4, scale=1)
case("at_rows_multiply", lambda a, i, j, u: a.at[:, i].multiply(u), z, repeated, other,
     f32(2, 5, 4), ulp=8, scale=1, grad=False)
case("at_rows_max", lambda a, i, j, u: a.at[:, i].max(u), np.round(z), repeated, other,
     np.round(f32(2, 5, 4)), gscale=1)
case("at_rows_add", lambda a, i, j, u: a.at[:, i].add(u), ints(0, 9, (2, 3, 4), np.uint8), repeated,
     other, ints(0, 255, (2, 5, 4), np.uint8))
case("at_rows_add", lambda a, i, j, u: a.at[:, i].add(u), z, np.zeros((0,), np.int32), other,
     np.zeros((2, 0, 4), np.float32))

# ---- products ----
case("tensordot", lambda a, b: jnp.tensordot(a, b, 2), z, f32(3, 4, 2), ulp=16, scale=1)
case("tensordot_axes", lambda a, b: jnp.tensordot(a, b, ((0, 2), (1, 0))), z, f32(4, 2, 3), ulp=16,
     scale=1)
case("inner", jnp.inner, f32(2, 3), f32(4, 3), ulp=16, scale=1)
case("vdot", jnp.vdot, f32(2, 3), f32(2, 3), ulp=16, scale=1)
case("outer", jnp.outer, f32(3), f32(2, 2))
case("kron", jnp.kron, f32(2, 3), f32(2), ulp=1)
case("matmul", jnp.matmul, np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32))
case("matmul", jnp.matmul, f32(2, 3).astype(bf16), f32(3, 4).astype(bf16), ulp=2, scale=1, grad=False)
case("matmul", jnp.matmul, ints(-9, 9, (2, 3)), ints(-9, 9, (3, 4)))

# ---- nn ----
case("softmax", nn.softmax, odd[1], ulp=8)
case("softmax", nn.softmax, z, ulp=16, scale=1)
case("softmax", nn.softmax, np.array([[-np.inf, 0, 1], [-np.inf] * 3, [80, -80, 0]], np.float32), ulp=8,
     void=np.array([[False], [True], [False]]))
case("log_softmax", nn.log_softmax, np.array([[-np.inf, 0, 1], [80, -80, 0]], np.float32), ulp=8,
     scale=1)
case("softmax_axis0", lambda a: nn.softmax(a, axis=0), z.astype(bf16), ulp=4, scale=1, grad=False)
case("glu", nn.glu, z, ulp=8, scale=1)
case("standardize", nn.standardize, z, ulp=32, scale=1)
for n, (t, s) in {"more_keys": (3, 5), "more_queries": (5, 3)}.items():
    q, k, v = f32(2, t, 4, 8), f32(2, s, 2, 8), f32(2, s, 2, 8)
    case("attention_causal", lambda a, b, c: nn.dot_product_attention(a, b, c, is_causal=True),
         q, k, v, ulp=100, scale=1)
    case("attention_bias", lambda a, b, c, d: nn.dot_product_attention(a, b, c, bias=d), q, k, v,
         f32(2, 4, t, s), ulp=100, scale=1)
    case("attention_mask",
         lambda a, b, c, d: nn.dot_product_attention(a, b, c, mask=d, is_causal=True), q, k, v,
         rng.random((2, 1, t, s)) < .7, ulp=100, scale=1)


# ---- random numbers ----
def draw(name, f, *inputs, ulp=0, scale=1, x64=False):
    with jax.enable_x64(True):
        key = jax.random.key(0x0123456789abcdef)
    with jax.enable_x64(x64):
        out = f(key, *[jnp.asarray(x) for x in inputs])
        out = out.astype(jnp.int32) if out.dtype == jnp.int64 and not x64 else out
        cases.append({"name": "random_" + name, "inputs": [stored(x) for x in inputs],
                      "outputs": [dump(out)], "ulp": ulp, "scale": scale})


r = jax.random
draw("randint", lambda k: r.randint(k, (9,), -5, 17))
draw("randint_all", lambda k: r.randint(k, (5,), -2**31, 2**31 - 1))
draw("randint_empty", lambda k: r.randint(k, (5,), 7, 7))
draw("randint_u8", lambda k: r.randint(k, (9,), 0, 256, jnp.uint8))
draw("randint_i8", lambda k: r.randint(k, (9,), -200, 100, jnp.int8))
draw("randint_u32", lambda k: r.randint(k, (9,), 5, 4000000000, jnp.uint32), x64=True)
draw("randint_i64", lambda k: r.randint(k, (9,), -10**12, 10**15, jnp.int64), x64=True)
draw("truncated_normal", lambda k: r.truncated_normal(k, -1.0, 2.5, (40,), jnp.float32), ulp=16)
draw("exponential", lambda k: r.exponential(k, (9,), jnp.float32), ulp=4)
draw("laplace", lambda k: r.laplace(k, (9,), jnp.float32), ulp=4)
draw("logistic", lambda k: r.logistic(k, (9,), jnp.float32), ulp=8)
draw("cauchy", lambda k: r.cauchy(k, (9,), jnp.float32), ulp=16)
draw("rademacher", lambda k: r.rademacher(k, (9,), jnp.int32))
draw("permutation", lambda k: r.permutation(k, 20).astype(jnp.int32))
draw("permutation_rows", lambda k, x: r.permutation(k, x, axis=1), z)
draw("permutation_independent", lambda k, x: r.permutation(k, x, axis=1, independent=True), z)
draw("choice", lambda k: r.choice(k, 10, (7,)).astype(jnp.int32))
draw("choice_distinct", lambda k: r.choice(k, 10, (2, 3), replace=False).astype(jnp.int32))
draw("choice_rows", lambda k, x: r.choice(k, x, (5,), axis=1), z)
weights = np.array([.1, .5, .05, .35], np.float32)
draw("choice_weighted", lambda k, p: r.choice(k, 4, (9,), p=p).astype(jnp.int32), weights)
draw("choice_weighted_distinct",
     lambda k, p: r.choice(k, 4, (3,), replace=False, p=p).astype(jnp.int32), weights)
draw("categorical_shape",
     lambda k, x: r.categorical(k, x, axis=0, shape=(4, 3, 4)).astype(jnp.int32), z[0][None][0:1]
     .repeat(2, 0))
draw("bernoulli_p", lambda k, p: r.bernoulli(k, p), weights)

rng = np.random.default_rng(8)
for n, (low, high) in {
        "row": (np.array([-3, 0, 7, 2**30], np.int32), np.array([4, 0, 8, 2**31 - 1], np.int32)),
        "scalar": (np.array(-5, np.int32), np.array([1, 2, 70000, -5], np.int32))}.items():
    draw("randint_bounds_" + n, lambda k, a, b: r.randint(k, (3, 4), a, b), low, high)
draw("randint_bounds_u8", lambda k, a, b: r.randint(k, (3, 4), a, b, jnp.uint8),
     np.array([0, 5, 250, -7], np.int32), np.array([256, 9, 256, 300], np.int32))
draw("randint_bounds_i64", lambda k, a, b: r.randint(k, (2, 3), a, b, jnp.int64),
     np.array([-10**12, 0, 5], np.int64), np.array([10**15, 3, 6], np.int64), x64=True)

# ---- special functions ----
gamma_points = np.array([0.0, -0.0, -1, -2, -0.5, -1.5, -2.25, -30.5, .25, .5, .75, 1.25, 2.5, 3, 7, 30,
                         1e4, 1e10, 1e37, 1e-8, np.inf, -np.inf, np.nan], np.float32)
for n, f in {"lgamma": lax.lgamma, "digamma": lax.digamma}.items():
    # JAX's digamma has NaN as its gradient at infinity; ours is the limit, 0. Below zero its trigamma
    # is the series of zeta for positive numbers.
    points = gamma_points if n == "lgamma" else np.delete(gamma_points, [2, 3, 4, 5, 6, 7, 20, 21])
    case(n, f, gamma_points, ulp=40, scale=1, grad=False)
    case(n, f, points, ulp=40, scale=1, gulp=200, gscale=1)
    case(n, f, np.abs(some) + np.float32(.1), ulp=40, scale=1, gulp=80, gscale=1)
    case(n, f, empty, ulp=40)
    case(n, f, gamma_points[8:16].astype(bf16), ulp=2, scale=1, grad=False)
    case(n, f, gamma_points[8:16].astype(np.float64), ulp=400, scale=1, gulp=4000)
case("signbit", jnp.signbit, special)
case("signbit", jnp.signbit, np.array([-3, 0, 4], np.int32))
# Its gradient at -0 and NaN is the sign that was given to them (JAX: 1).
case("copysign", jnp.copysign, special, special[::-1].copy(), grad=False)
case("copysign", jnp.copysign, some, some[::-1].copy())
case("log1mexp", nn.log1mexp, np.array([1e-30, 1e-8, .1, .5, .69, .7, 1, 5, 30, 100, np.inf], np.float32),
     ulp=16, scale=0)

# ---- padding by what is there ----
for mode in ["edge", "reflect", "symmetric", "wrap", "linear_ramp"]:
    for n, widths in {"a": ((2, 1), (0, 3)), "b": ((7, 9), (5, 4)), "c": ((0, 0), (1, 0))}.items():
        case(f"pad_{mode}_{n}", lambda a, m=mode, w=widths: jnp.pad(a, w, mode=m), f32(3, 4),
             ulp=4 if mode == "linear_ramp" else 0, scale=1, gulp=16, gscale=4)
    if mode != "linear_ramp":
        case(f"pad_{mode}_one", lambda a, m=mode: jnp.pad(a, ((2, 3),), mode=m), f32(1), gulp=8)
        case(f"pad_{mode}_a", lambda a, m=mode: jnp.pad(a, ((2, 1), (0, 3)), mode=m),
             ints(-9, 9, (3, 4)))

# ---- places and counts ----
holes = np.where(rng.random((3, 5)) < .4, np.float32(0), f32(3, 5))
holes[1, 2] = np.nan
for n, x in {"float": holes, "bool": rng.random((4, 3)) < .5, "none": np.zeros((2, 3), np.int32)}.items():
    for size in (3, 12):
        case(f"nonzero_{size}", lambda a, s=size: jnp.nonzero(a, size=s, fill_value=-1), x)
        case(f"flatnonzero_{size}", lambda a, s=size: jnp.flatnonzero(a, size=s), x)
        case(f"argwhere_{size}", lambda a, s=size: jnp.argwhere(a, size=s, fill_value=7), x)
case("compress", lambda c, a: jnp.compress(c, a, axis=1, size=3, fill_value=2),
     np.array([True, False, True, True]), f32(3, 5))
case("compress_all", lambda c, a: jnp.compress(c, a, axis=0, size=2),
     np.array([False, True]), f32(3, 2))
case("bincount", lambda a: jnp.bincount(a, length=6), np.array([0, 5, 5, 9, -3, 2, 2, 2], np.int32))
case("bincount_weights", lambda a, w: jnp.bincount(a, weights=w, length=5),
     np.array([0, 4, 4, 9, -3, 2], np.int32), f32(6), ulp=4, scale=1)
case("bincount_weights", lambda a, w: jnp.bincount(a, weights=w, length=5), np.zeros(0, np.int32),
     np.zeros(0, np.float32))
gaps = f32(4, 5)
gaps[1, 2] = gaps[0] = np.nan
gaps[2, 3] = np.inf
for n in ["nansum", "nanprod", "nanmax", "nanmin", "nanmean"]:
    for m, x in {"gaps": gaps, "whole": f32(3, 4), "half": f32(3, 4).astype(bf16),
                 "ints": ints(-5, 5, (3, 4))}.items():
        is_float_mean = n == "nanmean" or m != "ints"
        case(n, getattr(jnp, n), x, ulp=8 if is_float_mean else 0, scale=4, gulp=32, gscale=4)
        case(n + "_axis1", lambda a, f=getattr(jnp, n): f(a, axis=1), x,
             ulp=8 if is_float_mean else 0, scale=4, gulp=32, gscale=4, grad=m != "gaps")
case("ptp", jnp.ptp, f32(3, 4), ulp=2, scale=1)
case("ptp_axis1", lambda a: jnp.ptp(a, axis=1), ints(-9, 9, (3, 4)))
case("average", lambda a, w: jnp.average(a, axis=1, weights=w), f32(3, 4), np.abs(f32(3, 4)) + 1,
     ulp=16, scale=1, gulp=64)
case("percentile", lambda a: jnp.percentile(a, 30, axis=1), f32(3, 5), ulp=4, scale=1)

# ---- powers at places ----
for where, at in {"one": lambda a: a.at[1], "slice": lambda a: a.at[:, 1:3]}.items():
    case(f"at_{where}_power", lambda a, v, at=at: at(a).power(v), np.abs(f32(3, 4)) + 1, f32(),
         ulp=16, scale=1, gulp=64)
case("at_rows_power", lambda a, i, v: a.at[i].power(v), np.abs(f32(3, 4)) + 1,
     np.array([0, 2, 2, 5], np.int32), f32(), ulp=16, scale=1, gulp=64)

# ---- gather and scatter in their general form ----
table = np.sin(np.arange(24, dtype=np.float32)).reshape(2, 3, 4)
G, S = lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers
forms = {  # dimension numbers of both, slice sizes, and indices: in range and apart, and not
    "windows": (((0, 2), (1,), (1, 2)), (2, 1, 2), [[0, 2], [2, 0], [2, 2]],
                [[0, 3], [-1, 0], [2, 1], [7, 1]]),
    "batching": (((1, 3), (), (2,), (0,), (1,)), (1, 3, 2),
                 [[[0], [2]], [[2], [0]]], [[[0], [2]], [[3], [-1]], [[1], [5]]]),
    "turned": (((), (1,), (1,), (0, 2), (2, 0)), (1, 1, 1),
               np.arange(8).reshape(4, 1, 2, 1) % 3, np.arange(8).reshape(4, 1, 2, 1) % 5 - 1),
}
for n, (numbers, sizes, within, beyond) in forms.items():
    for mode in ("fill", "clip", "promise_in_bounds"):
        def f(a, i, mode=mode, value=None):
            return lax.gather(a, i, G(*numbers), sizes, mode=mode, fill_value=value)
        i = np.array(within if mode == "promise_in_bounds" else beyond, np.int32)
        case(f"gather_{n}_{mode}", f, table, i, gscale=1)
        if mode == "fill":
            case(f"gather_{n}_fill", f, (table * 100).astype(np.int32), i.astype(np.int8))
            case(f"gather_{n}_fill", f, (table > 0), i)
            case(f"gather_{n}_seven", lambda a, i: f(a, i, "fill", 7), table, i, gscale=1)
    for op in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
        for mode in ("drop", "clip", "promise_in_bounds"):
            apart = mode == "promise_in_bounds" or op in ("scatter", "scatter_mul")
            # JAX divides by counts at the places before they are clipped: infinities.
            right = mode != "clip" or op not in ("scatter_min", "scatter_max")
            i = np.array(within if apart else beyond, np.int32)
            shape = lax.gather(jnp.asarray(table), i, G(*numbers), sizes).shape
            case(f"{op}_{n}_{mode}", lambda a, i, u: getattr(lax, op)(
                     a, i, u, S(*numbers), mode=mode, unique_indices=apart),
                 table, i, np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape),
                 ulp=4, scale=1, gscale=4, grad=right)

# ---- bools, integers and narrow floats where they were refused or differed ----
truth = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
for spec in ("ij,jk->ik", "ij,kj->", "ij,ij->i", "ii,jk->ik"):
    case(f"einsum_{spec}", lambda a, b: jnp.einsum(spec, a, b), truth, ~truth.T)
for spec in ("ij->i", "ii->i", "ii->"):
    case(f"einsum_{spec}", lambda a: jnp.einsum(spec, a), truth)
case("matmul", jnp.matmul, truth, ~truth.T)
case("matmul", jnp.matmul, truth[:, :0], truth[:0])
case("inner", jnp.inner, truth, ~truth)
case("vdot", jnp.vdot, truth, ~truth)
case("matmul_i32", lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32), truth, truth.T)
for n in ("int8", "uint8", "int32", "uint32", "int64", "bool"):
    for m, (first, last, count) in {"up": (0, 10, 4), "down": (2.5, -3.75, 9), "far": (-5, 300, 4),
                                    "one": (2.7, 5, 1)}.items():
        case(f"linspace_{names[n]}_{m}", lambda a: jnp.linspace(first, last, count, dtype=n),
             np.zeros((), n))
    case(f"linspace_{names[n]}_open",
         lambda a: jnp.linspace(-3, 4, 5, endpoint=False, dtype=n), np.zeros((), n))
for n in ("float16", "bfloat16", "float32"):
    draw(f"cauchy_{names[n]}", lambda k: r.cauchy(k, (60,), n), ulp=16 if n == "float32" else 1)


# ---- gradients at zero, at infinity and of what is not finite; bools; second derivatives ----
bases = np.array([0.0, -0.0, 2, -2, np.inf, -np.inf, np.nan, 1, 0.5], np.float32)
pb_, pe = [g.reshape(-1) for g in np.meshgrid(bases, np.array([0, 1, 2, -1, 0.5, np.inf, np.nan], np.float32))]
case("power", jnp.power, pb_, pe, ulp=8)
case("power", jnp.power, *[g.reshape(-1) for g in np.meshgrid(bases, np.array([0, 1, 3, -2], np.int32))],
     ulp=8)
for n in ("hypot", "logaddexp"):
    case(n, floats[n], fa, fb, ulp=8, gscale=1,
         void=np.isneginf(fa) & np.isneginf(fb) if n == "logaddexp" else None)
case("log_of_maximum", lambda a, b: jnp.log(jnp.maximum(a, b)), np.array([-1, 0, 2, np.nan], np.float32),
     np.zeros(4, np.float32), ulp=4)
for n in ("softplus", "log_sigmoid", "celu"):
    case(n, unary[n], special, ulp=16, scale=1, gscale=1)
for n, f in {"softplus_slope": nn.softplus, "digamma_slope": lax.digamma}.items():
    case(n, jax.grad(lambda a, f=f: jnp.sum(f(a))), np.array([0, 1, 2, 0.75, 7], np.float32)[n[0] == "d":],
         ulp=40, scale=1, gulp=80, gscale=1)
case("relu6", nn.relu6, np.array([0, 6, 7, 3], np.float32))
case("hard_silu", nn.hard_silu, np.array([-3, 3, 4, 0], np.float32), ulp=4)
for n in ("relu", "relu6"):
    for dtype in (bool, np.int32, np.uint8):
        case(n, unary[n], np.array([0, 1, 9], dtype))
for n in ("floor_divide", "remainder", "fmod", "power"):
    case(n, floats[n], ba, bb)
for n, f in {"left_shift": jnp.left_shift, "right_shift": jnp.right_shift}.items():
    case(n, f, ba, bb)

# ---- too few to divide by, infinities in the middle, signed zeros in order ----
case("var_ddof3", lambda a: jnp.var(a, axis=1, ddof=3), z[:, :, :1])
case("median_axis1", lambda a: jnp.median(a, axis=1),
     np.array([[np.inf, 1, np.inf], [-np.inf, -np.inf, -np.inf], [np.inf, -np.inf, 0], [2, 1, 2]],
              np.float32), ulp=1, grad=False)
for x in (np.float32, bf16, np.float64):
    case("top_k", lambda a: lax.top_k(a, 3), np.array([[-0.0, 0, -0.0, -1], [0, -0.0, 0, 1]], x))
case("norm_inf", lambda a: jnp.linalg.norm(a, ord=np.inf, axis=1),
     np.array([[0, 0, 0], [1, -2, 2]], np.float32))
case("norm_inf", lambda a: jnp.linalg.norm(a, ord=np.inf, axis=1), np.zeros((2, 0), np.float32))
case("average_axis0", lambda a, w: jnp.average(a, axis=0, weights=w),
     np.arange(9, dtype=np.float32).reshape(3, 3), np.array([1, 2, 5], np.float32), ulp=4, scale=1)
case("average_axes20", lambda a, w: jnp.average(a, axis=(2, 0), weights=w),
     np.arange(8, dtype=np.float32).reshape(2, 2, 2), np.array([[1, 2], [5, 4]], np.float32), ulp=4,
     scale=1)
case("convolve_full", lambda a, v: jnp.convolve(a, v), ints(-9, 9, (4,)), ints(-9, 9, (3,)))

# ---- reductions of a part, with a first value, in another dtype; sorts by several keys ----
mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
column = np.array([[1], [0], [1]], bool)
gone = f32(3, 4)
gone[0, 1] = np.nan
gone[1, 2] = np.inf
for m, x in {"f32": f32(3, 4), "gone": gone, "half": f32(3, 4).astype(bf16), "i8": ints(-5, 5, (3, 4)).astype(np.int8),
             "bool": mask}.items():
    floats_only = m != "gone"
    for n in ("sum", "prod", "mean", "any", "all"):
        f = getattr(jnp, n)
        case(n + "_where", lambda a, w, f=f: f(a, axis=1, where=w), x, mask, ulp=4, scale=4, gulp=16,
             gscale=4, grad=floats_only)
        case(n + "_where_all", lambda a, w, f=f: f(a, where=w, keepdims=True), x, column, ulp=8,
             scale=4, gulp=16, gscale=4, grad=floats_only)
    for n in ("sum", "prod", "max", "min"):
        f = getattr(jnp, n)
        case(n + "_initial", lambda a, f=f: f(a, axis=0, initial=True if a.dtype == bool else 1), x,
             ulp=4, scale=4, gulp=16, gscale=4, grad=floats_only)
        case(n + "_where_initial",
             lambda a, w, f=f: f(a, axis=1, where=w, initial=False if a.dtype == bool else -2), x, mask,
             ulp=4, scale=4, gulp=16, gscale=4, grad=floats_only)
    for n in ("var", "std"):
        f = getattr(jnp, n)
        case(n + "_where", lambda a, w, f=f: f(a, axis=1, ddof=1, where=w), x, mask, ulp=16, scale=4,
             grad=n == "var" and floats_only, gulp=64, gscale=4)
    for n in ("sum", "prod", "mean", "var"):
        case(n + "_f16", lambda a, f=getattr(jnp, n): f(a.astype(np.float32), axis=1, dtype=np.float16), x,
             ulp=2, scale=8, gulp=16, gscale=8, grad=floats_only and m != "half")
for n in ("max", "min"):
    case(n + "_initial", lambda a, f=getattr(jnp, n): f(a, axis=0, initial=1), np.zeros((0, 2), np.float32))
for x in (np.array([[1 << 63, 3], [(1 << 64) - 1, 7]], np.uint64), np.array([[-(1 << 63), 3], [5, 7]])):
    for n in ("max", "min"):
        case(n + "_where_huge", lambda a, w, f=getattr(jnp, n): f(a, axis=1, where=w, initial=a[1, 0]), x,
             np.array([[True, False], [False, False]]))
for n in ("mean", "var"):
    case(n + "_in_f64", lambda a, f=getattr(jnp, n): f(a, axis=0, dtype=np.float64), np.array([16777217, 4, 1]),
         ulp=2)
case("sum_bool", lambda a: jnp.sum(a, axis=1, dtype=bool), mask)
for n, f in {"softmax": nn.softmax, "log_softmax": nn.log_softmax}.items():
    case(n + "_where", lambda a, w, f=f: f(a, where=w), f32(3, 4), np.array(mask | column.T[:, :1]), ulp=4,
         scale=1, gulp=32, gscale=1, grad=n == "softmax")
    case(n + "_where", lambda a, w, f=f: f(a, where=w), f32(3, 4), mask, ulp=4, scale=1, gulp=32,
         gscale=1, grad=n == "softmax")
logsumexp = jax.scipy.special.logsumexp
case("logsumexp_where", lambda a, w: logsumexp(a, axis=1, where=w), f32(3, 4), mask, ulp=4, scale=1,
     gulp=32, gscale=1, grad=False)
case("logsumexp_where", lambda a, w: logsumexp(a, axis=1, where=w), gone, column, ulp=4, scale=1, grad=False)
case("logsumexp_b", lambda a, b: logsumexp(a, axis=1, b=b), f32(3, 4), np.abs(f32(3, 4)), ulp=8, scale=1,
     gulp=32, gscale=1)
case("logsumexp_b", lambda a, b: logsumexp(a, axis=1, b=b), f32(3, 4), np.array([[1], [-1], [0]], np.float32),
     ulp=8, scale=1, grad=False)
for n in (-1, 1, 3):
    case(f"round_{n}", lambda a: jnp.round(a, n), np.array([1.25, -12.345, 15, 0.05, np.inf, np.nan, -0.0], np.float32),
         ulp=1)  # XLA multiplies by the reciprocal
    case(f"round_{n}", lambda a: jnp.round(a, n), np.array([1.25, -12.345, 15, 0.05], np.float16))
case("round_3", lambda a: jnp.round(a, 3), np.array([5, -2]))
for n in (0, 1, 2, 4):
    case(f"diff_{n}", lambda a: jnp.diff(a, n=n), f32(2, 3), ulp=4, scale=1)
first, second = ints(0, 3, (3, 6)), np.array([[0.0, -0.0, 1, np.nan, 1, 0]] * 3, np.float32)
third = np.arange(18).reshape(3, 6).astype(np.float32)
for n in (1, 2, 3):
    case(f"sort_by_{n}", lambda a, b, c: lax.sort((a, b, c), dimension=1, num_keys=n), first, second, third, grad=False)
    case(f"sort_along0_by_{n}", lambda a, b, c: lax.sort((a, b, c), dimension=0, num_keys=n), third % 4, first, third,
         grad=False)
case("lexsort", lambda a, b: jnp.lexsort((b, a)), first, second)
for m, x in {"gaps": gaps, "whole": f32(3, 4), "half": f32(3, 4).astype(bf16), "ints": ints(-5, 5, (3, 4))}.items():
    for n in ("nanvar", "nanstd", "nanmedian"):
        f = getattr(jnp, n)
        finite = n == "nanvar" or (m != "gaps" and n == "nanmedian")
        case(n, f, x, ulp=16, scale=4, gulp=32, gscale=4, grad=finite)
        case(n + "_axis1", lambda a, f=f: f(a, axis=1), x, ulp=16, scale=4, gulp=32, gscale=4, grad=finite)
    case("nanvar_ddof1", lambda a: jnp.nanvar(a, axis=0, ddof=1), x, ulp=16, scale=4, gulp=32, gscale=4)
    case("nanvar_ddof4", lambda a: jnp.nanvar(a, axis=0, ddof=4), x, ulp=16, scale=4, gulp=32, gscale=4)
    case("nanquantile", lambda a: jnp.nanquantile(a, 0.3, axis=0), x, ulp=4, scale=1, gulp=32, gscale=4, grad=m != "gaps")

# ---- derivatives ----
rng = np.random.default_rng(20)


@jax.custom_jvp
def soft(x, w):
    return jnp.log1p(jnp.exp(x)) * w


@soft.defjvp
def soft_rule(primals, tangents):  # not the real derivative, to be told from it
    x, w = primals
    dx, dw = tangents
    return soft(x, w), 3 * w * nn.sigmoid(x) * dx - jnp.sin(w) * dw


def run(c, x, w):
    return lax.scan(lambda c, x: (soft(c + x, w), c), c, x)[1]


points, tangent, rows = f32(4), f32(4), f32(3, 4)
case("custom_jvp", soft, points, tangent, ulp=8, scale=1)
case("custom_jvp_scan", run, points, rows, tangent, ulp=16, scale=1, gulp=400, gscale=1)
case("custom_jvp_jvp", lambda x, w, t: jax.jvp(soft, (x, w), (t, w))[1], points, tangent, f32(4), ulp=16,
     scale=1, gulp=64)
case("custom_jvp_hessian", lambda x, w: jax.hessian(lambda a: jnp.sum(soft(a, w)))(x), points, tangent,
     ulp=16, scale=1, gulp=64)
case("linearize", lambda x, t: jax.linearize(lambda a: jnp.outer(jnp.sin(a), a), x)[1](t), points, tangent,
     ulp=8, scale=1)
case("linear_transpose", lambda x, y: jax.linear_transpose(lambda a: jnp.cumsum(a) * x, x)(y)[0], points,
     tangent, ulp=8, scale=1)
case("hessian", jax.hessian(lambda a: jnp.outer(jnp.sin(a), a * a)), points[:2], ulp=8, scale=1)

# ---- places of arrays: applied, inserted, deleted, counted ----
rng = np.random.default_rng(21)
at_rows = np.array([0, 0, 3, -1, 7], np.int32)
case("at_apply_rows", lambda a, i: a.at[i].apply(lambda v: v * 2 + 1), f32(4, 3), at_rows, grad=False)
case("at_apply_clip", lambda a, i: a.at[i].apply(jnp.square, mode="clip"), ints(-5, 5, (4, 3)), at_rows)
case("at_apply_slice", lambda a: a.at[1, ::2].apply(jnp.sin), f32(2, 5), ulp=4, scale=1, grad=False)
for mode in ("clip", "drop"):
    for n, f in {"set": lambda at: at.set, "add": lambda at: at.add, "max": lambda at: at.max,
                 "multiply": lambda at: at.multiply}.items():
        case(f"at_{n}_{mode}", lambda a, i, v, f=f: f(a.at[i])(v, mode=mode), f32(4, 3),
             np.array([1, -2, 5, -9], np.int32), f32(4, 3), ulp=2, scale=1,
             grad=n in ("set", "add") and mode == "drop")
case("at_get_fill", lambda a, i: a.at[i].get(mode="fill", fill_value=7), f32(4, 3), at_rows, gscale=1)
case("take_fill_value", lambda a, i: jnp.take(a, i, axis=1, mode="fill", fill_value=-2), ints(0, 9, (2, 4)), at_rows)
case("take_along_axis_fill", lambda a, i: jnp.take_along_axis(a, i[None], axis=1, mode="fill", fill_value=-2),
     f32(2, 4), at_rows)
windows = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,),
                                      scatter_dims_to_operand_dims=(0,))
case("scatter_apply", lambda a, i: lax.scatter_apply(a, i[:, None], lambda v: v * 2 + 1, windows,
                                                     update_shape=(5, 3)), f32(4, 3), at_rows, grad=False)
case("insert_flat", lambda a, v: jnp.insert(a, 2, v), f32(2, 3), f32(2))
case("insert_one", lambda a, v: jnp.insert(a, -1, v, axis=1), f32(2, 3), f32(2))
case("insert_several", lambda a, v: jnp.insert(a, jnp.array([2, 0, 2, -3]), v, axis=1), f32(2, 3), f32(2, 4))
case("insert_scalar", lambda a: jnp.insert(a, jnp.array([1, 1]), 5, axis=0), ints(0, 9, (3, 2)))
case("insert_list_of_one", lambda a, v: jnp.insert(a, jnp.array([1]), v, axis=1), f32(2, 3), f32(2, 1))
case("insert_rows", lambda a, v: jnp.insert(a, 1, v, axis=0), f32(2, 3), f32(2, 3))
case("delete_one", lambda a: jnp.delete(a, -1, axis=1), f32(2, 3))
case("delete_several", lambda a: jnp.delete(a, np.array([0, 3, -1, 0]), axis=0), f32(5, 2))
case("delete_flat", lambda a: jnp.delete(a, np.array([1, 2])), ints(0, 9, (2, 3)))
case("resize_more", lambda a: jnp.resize(a, (3, 4)), f32(2, 3))
case("resize_less", lambda a: jnp.resize(a, (2, 2)), ints(0, 9, (2, 3)))
case("resize_nothing", lambda a: jnp.resize(a, (2, 2)), empty)
for mode in ["maximum", "minimum", "mean", "median"]:
    for n, (widths, length) in {"a": (((2, 1), (0, 3)), None), "b": (((1, 2), (2, 4)), 2),
                                "c": (((0, 1), (2, 0)), 9)}.items():
        x = f32(3, 4)
        case(f"pad_{mode}_{n}", lambda a: jnp.pad(a, widths, mode=mode, stat_length=length), x, ulp=4, scale=1,
             gulp=16, gscale=4)
        case(f"pad_{mode}_{n}", lambda a: jnp.pad(a, widths, mode=mode, stat_length=length), ints(-9, 9, (3, 4)))
case("pad_ramp_to", lambda a: jnp.pad(a, ((2, 1), (0, 3)), mode="linear_ramp", end_values=-1.5), f32(3, 4), ulp=8,
     scale=1, gulp=16, gscale=4)
rounding = np.concatenate([special, some, np.array([65504, 65520, 65519, 6e-5, 6.2e-5, -3e-5, 3.4e38], np.float32)])
for e, m in ((5, 10), (8, 7), (4, 3), (8, 23), (2, 0)):
    case(f"reduce_precision_{e}_{m}", lambda a: lax.reduce_precision(a, e, m), rounding, gulp=1 if m == 23 else 0)
case("reduce_precision_5_10", lambda a: lax.reduce_precision(a, 5, 10), special.astype(np.float64), gulp=0)
case("reduce_precision_4_3", lambda a: lax.reduce_precision(a, 4, 3), rounding.astype(bf16), grad=False)

levels = np.array([.1, .25, .9, .5, 1, 0, .33, .77, .25, -.4, 1.7], np.float32)
case("histogram", lambda a: jnp.histogram(a, 5), levels, ulp=2, scale=1, grad=False)
case("histogram", lambda a: jnp.histogram(a, 5), ints(0, 9, (3, 4)), ulp=2, scale=1)
case("histogram", lambda a: jnp.histogram(a, 5), np.array([2, 2], np.float32), ulp=2, scale=1, grad=False)
case("histogram_range", lambda a, w: jnp.histogram(a, 4, range=(0, 1), weights=w), levels, f32(11), ulp=4, scale=1,
     grad=False)
case("histogram_density", lambda a: jnp.histogram(a, 4, density=True), levels, ulp=4, scale=1, grad=False)
case("histogram_edges", lambda a, e: jnp.histogram(a, e), levels, np.array([0, .2, .3, 1], np.float32), grad=False)
falling = np.array([.9, .5, .25, 0], np.float32)
for n, right in {"": False, "_right": True}.items():
    case("digitize" + n, lambda a, b: jnp.digitize(a, b, right=right), levels, falling)
    case("digitize" + n, lambda a, b: jnp.digitize(a, b, right=right), levels, falling[::-1].copy())
steps, heights = np.array([-.5, 0, .5, .5, 1.2], np.float32), f32(5)
case("interp", jnp.interp, levels, steps, heights, ulp=8, scale=1, gulp=64, gscale=4)
case("interp_beyond", lambda a, p, f: jnp.interp(a, p, f, left=-7, right=9), ints(-2, 3, (2, 3)), steps, heights, ulp=8,
     scale=1, gulp=64, gscale=4)
case("isin", jnp.isin, ints(0, 6, (3, 4)), ints(0, 6, (2, 2)))
case("isin_not", lambda a, b: jnp.isin(a, b, invert=True), f32(3), empty)
several = np.array([3, 1, np.nan, 1, 2, np.nan, 3, 0, -0.0], np.float32)
for n, x in {"float": several, "ints": ints(0, 4, (3, 3)), "bool": rng.random(4) < .5}.items():
    for size in (2, 9):
        case(f"unique_{size}", lambda a: jnp.unique(a, return_index=True, return_inverse=True, return_counts=True,
                                                    size=size), x, grad=False)
        case(f"unique_{size}_fill", lambda a: jnp.unique(a, size=size, fill_value=-1), x, grad=False)

# ---- distributions with parameters ----
shapes = np.array([.05, .3, .9, 1, 1.5, 4, 30, 1000], np.float32)
draw("gamma", lambda k, a: r.gamma(k, a), shapes, ulp=32, scale=0)
draw("gamma_many", lambda k: r.gamma(k, 0.7, (3, 200)), ulp=32, scale=0)
draw("gamma_large", lambda k: r.gamma(k, 2.5, (500,)), ulp=32, scale=0)
draw("gamma_f64", lambda k: r.gamma(k, 1.3, (50,), jnp.float64), ulp=64, scale=0, x64=True)
draw("loggamma", lambda k, a: r.loggamma(k, a), shapes, ulp=32)
draw("loggamma_small", lambda k: r.loggamma(k, 1e-3, (40,)), ulp=32, scale=0)
draw("beta", lambda k, a: r.beta(k, a, 2.0), shapes, ulp=64)
draw("beta_shape", lambda k, a: r.beta(k, a, a[::-1], (3, 8)), shapes, ulp=64)
draw("dirichlet", lambda k, a: r.dirichlet(k, a, (4,)), shapes, ulp=64)
draw("t", lambda k: r.t(k, 3.5, (40,)), ulp=64)
draw("chisquare", lambda k, a: r.chisquare(k, a), shapes, ulp=128, scale=0)
draw("f", lambda k, a: r.f(k, a, 4.0), shapes, ulp=256, scale=0)
draw("generalized_normal", lambda k: r.generalized_normal(k, 1.5, (40,)), ulp=64)
draw("ball", lambda k: r.ball(k, 3, 2.0, (7,)), ulp=64)
draw("ball_l1", lambda k: r.ball(k, 4, 1.0, (2, 3)), ulp=64)
draw("pareto", lambda k, a: r.pareto(k, a, (2, 8)), shapes[2:].repeat(2)[:8], ulp=32, scale=0)
draw("rayleigh", lambda k, a: r.rayleigh(k, a), shapes, ulp=16, scale=0)
draw("weibull_min", lambda k: r.weibull_min(k, 2.0, 1.5, (40,)), ulp=32, scale=0)
draw("lognormal", lambda k: r.lognormal(k, 0.5, (40,)), ulp=32, scale=0)
draw("wald", lambda k, a: r.wald(k, a), shapes[:6], ulp=256)
draw("triangular", lambda k: r.triangular(k, -1.0, 0.5, 2.0, (40,)), ulp=32)
draw("maxwell", lambda k: r.maxwell(k, (3, 8)), ulp=32, scale=0)
draw("double_sided_maxwell", lambda k, a: r.double_sided_maxwell(k, a, 2.0, (2,)), shapes[:3], ulp=32)
draw("double_sided_maxwell_own", lambda k, a: r.double_sided_maxwell(k, a, 2.0), shapes[:3], ulp=32)
rates = np.array([0, .1, 3, 9.9, 10, 50, 400, 1e4, np.nan], np.float32)
draw("poisson", lambda k, a: r.poisson(k, a), rates)
draw("poisson_few", lambda k: r.poisson(k, 4.0, (300,)))
draw("poisson_many", lambda k: r.poisson(k, 30.0, (5, 60)))
draw("poisson_u8", lambda k: r.poisson(k, 2.0, (20,), jnp.uint8))
chances = np.array([0, .1, .5, .9, 1, .3, -.1, np.nan], np.float32)
for n in (0, 7, 90, 5000):
    draw(f"binomial_{n}", lambda k, p: r.binomial(k, n, p), chances)
draw("binomial_few", lambda k: r.binomial(k, 12.0, 0.4, (300,)))
draw("binomial_many", lambda k: r.binomial(k, 100.0, 0.3, (300,)))
draw("binomial_odd", lambda k, n: r.binomial(k, n, 0.4), np.array([-1, np.nan, np.inf, 2.5], np.float32))
draw("multinomial", lambda k, p: r.multinomial(k, 60.0, p), np.array([[.2, .3, .5], [0, 1, 0]], np.float32))
draw("categorical_apart", lambda k, x: r.categorical(k, x, axis=0, shape=(2, 3), replace=False).astype(jnp.int32),
     np.arange(12).reshape(4, 3).astype(np.float32) % 5)
draw("geometric", lambda k, p: r.geometric(k, p, (4, 3)), np.array([.1, .5, .99], np.float32))


with jax.enable_x64(True):
    seed = jax.random.key(0x0123456789abcdef)
for n, f in {"gamma": r.gamma, "loggamma": r.loggamma, "beta": lambda k, a: r.beta(k, a, 2.0),
             "dirichlet": lambda k, a: r.dirichlet(k, a, (4,)), "chisquare": r.chisquare,
             "t_of": r.t, "f": lambda k, a: r.f(k, a, 4.0)}.items():
    case("random_" + n, lambda a: f(seed, a), shapes, ulp=256, gulp=800, gscale=.01)
case("random_gamma_of_f64", lambda a: r.gamma(seed, a, dtype=jnp.float64), shapes.astype(np.float64), ulp=512, gulp=4000)

# ---- distribution functions ----
import jax.scipy.special as sp  # noqa: E402

grid = np.array([1e-3, .1, .5, .9, 1, 1.5, 2.5, 7, 30, 200], np.float32)
both = [v.reshape(-1) for v in np.meshgrid(grid, grid)]
odd = np.array([0, 1, 2, -1, 3, 2, np.nan, 2, 0, 2], np.float32), np.array([1, 0, np.inf, 2, -1, np.nan, 1, -np.inf, 0, 0], np.float32)
points = np.concatenate([special, np.linspace(-12, 12, 25, dtype=np.float32), np.array([-40, 300, -1e5], np.float32)])
chance = np.array([0, 1e-30, 1e-10, 1e-3, .1, .3, .5, .6, .9, .999, 1, -.5, 1.5, np.nan], np.float32)
for dt in (np.float32, np.float64):
    fine = {"ulp": 1000, "gulp": 1600} if dt == np.float32 else {"ulp": 1e4, "gulp": 1e5}
    a, x = [v.astype(dt) for v in both]
    near = (x < a + 20 * np.sqrt(a)) & (x > a - 4 * np.sqrt(a))  # elsewhere theirs stops early
    for n in ("igamma", "igammac"):
        case(n, getattr(lax, n), a, x, scale=1e-2, gscale=1e-1, **fine)
        case(n, getattr(lax, n), *[np.delete(v.astype(dt), [0, 4]) for v in odd], grad=False)
    case("random_gamma_grad", lax.random_gamma_grad, a[near], x[near], ulp=fine["ulp"], grad=False)
    case("zeta", sp.zeta, a[a > 1], x[a > 1], **fine)
    case("betaln", sp.betaln, a, x, ulp=100 if dt == np.float32 else 1e9, scale=1, gulp=1000 if dt == np.float32 else 1e9, gscale=1)
    case("betainc", lambda v: lax.betainc(jnp.full_like(v, 2.5), jnp.full_like(v, .5), v), chance[2:].astype(dt), **fine)
    case("betainc_of", lax.betainc, a, x, (a * 7 % 1).astype(dt), scale=1e-2, grad=False, **fine)
    for n in (0, 1, 2, 5):
        case(f"polygamma_{n}", lambda v: lax.polygamma(jnp.full_like(v, n), v), grid.astype(dt), **fine)
    for n in ("xlogy", "xlog1py", "rel_entr", "kl_div"):
        case(n, getattr(sp, n), a, x, ulp=40, scale=10, gulp=40)
        case(n, getattr(sp, n), *[v.astype(dt) for v in odd], ulp=4)
    for n in ("bessel_i0e", "bessel_i1e"):
        case(n, getattr(lax, n), points.astype(dt), scale=1e-2, grad=False, **fine)
        case(n, getattr(lax, n), points[23:].astype(dt), scale=1e-2, gscale=1e-2, **fine)
    case("ndtr", sp.ndtr, points.astype(dt), scale=1e-9, **fine)
    case("log_ndtr", sp.log_ndtr, points.astype(dt), scale=1e-3, grad=False, **fine)
    case("log_ndtr", sp.log_ndtr, points[23:-3].astype(dt), scale=1e-3, **fine)
    case("ndtri", sp.ndtri, chance[1:10].astype(dt), scale=1, **fine)
    case("ndtri", sp.ndtri, chance.astype(dt), scale=1, grad=False, **fine)
    case("logit", sp.logit, chance.astype(dt), scale=1, **fine)
    case("entr", sp.entr, points.astype(dt), scale=1, gscale=1, **fine)


# ---- further names ----
rng = np.random.default_rng(22)
odd = z.copy()
odd[0, 0, 0], odd[0, 1, 2], odd[1, 2, 3], odd[1, 0, 1] = np.nan, np.inf, -np.inf, -0.0
degree = np.array([0, 1, -2, 30, 127, 128, -149, -150, 200, -300], np.int32)
da, db = [v.reshape(-1) for v in np.meshgrid(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1.75, 3e38, 1.25e-38, 1.2e-7],
                                                      np.float32), degree)]
normal_range = np.abs(np.nan_to_num(np.ldexp(da.astype(np.float64), db), nan=1, posinf=1, neginf=1)) > 1.2e-38
normal_range |= (da == 0) | (np.abs(np.ldexp(da.astype(np.float64), db)) < 1e-46)
da, db = da[normal_range], db[normal_range]  # XLA has no smaller numbers
for dt in (np.float32, np.float64, np.float16, bf16):
    wide = dt in (np.float32, np.float64)
    case("ldexp", jnp.ldexp, da[np.abs(da) < 1e-3 if dt == np.float16 else slice(None)][:40].astype(dt),
         db[np.abs(da) < 1e-3 if dt == np.float16 else slice(None)][:40], grad=False)
    case("ldexp", jnp.ldexp, some.astype(dt), np.arange(-6, 6, dtype=np.int8), grad=wide, gulp=8)
    case("frexp", jnp.frexp, special.astype(dt), grad=False)
    case("frexp", jnp.frexp, some.astype(dt), grad=wide, gulp=8)
    case("modf", jnp.modf, special.astype(dt), grad=wide)
case("ldexp", jnp.ldexp, ints(-9, 9, (5,)), np.array([[1], [-3]], np.int32))
for n in ("fmax", "fmin", "heaviside", "logaddexp2", "float_power"):
    f, rough = getattr(jnp, n), n in ("logaddexp2", "float_power")
    case(n, f, fa, fb, ulp=8 if rough else 0, scale=1 if rough else 0, grad=not rough)
    case(n, f, np.abs(pa) + np.float32(.1), pb, ulp=8 if rough else 0, scale=1)
    if n != "heaviside":
        case(n, f, ints(1, 5, (4, 3)), ints(0, 4, (3,)), ulp=8)
for n in ("deg2rad", "radians", "rad2deg", "degrees", "sinc", "fabs", "isposinf", "isneginf"):
    case(n, getattr(jnp, n), special, ulp=4, grad=n != "sinc")
    case(n, getattr(jnp, n), some, ulp=8, scale=.1, gscale=1)  # theirs and ours of sinc cancel
    if n not in ("fabs", "isposinf", "isneginf"):
        case(n, getattr(jnp, n), ints(-3, 3, (4,)), ulp=4)
for n in ("absolute", "positive"):
    case(n, getattr(jnp, n), special)
case("fabs", jnp.fabs, ints(-3, 3, (4,)))
case("sinc_hessian", lambda a: jax.vmap(jax.grad(jax.grad(jnp.sinc)))(a), np.array([0, .5, -1.2], np.float32), ulp=64, scale=1)
for n in ("sparse_plus", "sparse_sigmoid"):
    case(n, getattr(nn, n), np.delete(special, [5, 6]), ulp=2)
    case(n, getattr(nn, n), some, ulp=2, scale=1)
case("logmeanexp", nn.logmeanexp, z, ulp=16, scale=1)
case("logmeanexp_axis1", lambda a: nn.logmeanexp(a, axis=1), z, ulp=16, scale=1)
for n, f in [("divmod", jnp.divmod), ("true_divide", jnp.true_divide)]:
    case(n, f, ia, ib, ulp=1)
    case(n, f, fa, fb)
for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    case(n + "_of", getattr(jnp, n), fa, fb)
for n in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(n + "_of", getattr(jnp, n), ia, ib)
case("invert", jnp.invert, ia)
case("allclose", jnp.allclose, fa, fa)
case("allclose_nan", lambda a, b: jnp.allclose(a, b, equal_nan=True), fa, fa)
for n, b in (("same", fa), ("other", fb), ("shape", fa[:3])):
    case("array_equal", jnp.array_equal, fa, b)
    case("array_equal_nan", lambda a, b: jnp.array_equal(a, b, equal_nan=True), fa, b)
    case("array_equiv", jnp.array_equiv, np.ones(3, np.float32), np.ones((2, 3), np.float32))
    case("array_equiv", jnp.array_equiv, ia, ib[:3])
case("select", lambda a, b, c, d: jnp.select([a, b], [c, d], 7), ba, bb, f32(4), f32(2, 4))
case("select", lambda a, b, c, d: jnp.select([a, b], [c, d], 7), ba, bb, ints(0, 9, (4,)), f32(4))
case("polyval", jnp.polyval, f32(4), f32(3, 2), ulp=16, scale=4, gscale=8)
case("polyval", jnp.polyval, f32(0), f32(3))

zero4 = np.zeros(4, np.float32)
case("logspace", lambda a: a + jnp.logspace(-1, 2, 4), zero4, ulp=8)
case("logspace_2", lambda a: a + jnp.logspace(1, 3, 4, endpoint=False, base=2), zero4, ulp=8)
case("geomspace", lambda a: a + jnp.geomspace(-1, -1000, 4), zero4, ulp=8)
case("geomspace_open", lambda a: a + jnp.geomspace(2, 32, 4, endpoint=False), zero4, ulp=8)
case("arange_floats", lambda a: a + jnp.arange(0.5, 2.5, 0.5), zero4)
case("arange_stop", lambda a: a + jnp.arange(3.5), zero4)
case("arange_down", lambda a: a + jnp.arange(1, 0, -0.25), zero4)
case("arange_tenths", lambda a: a + jnp.arange(0, 1, 0.1), np.zeros(10, np.float32), ulp=1)
for k in (-1, 0, 1):
    case("tril_indices_%d" % k, lambda a: [a + i for i in jnp.tril_indices(3, k, 4)], np.int32(0))
    case("triu_indices_%d" % k, lambda a: [a + i for i in jnp.triu_indices(3, k)], np.int32(0))
case("vander", jnp.vander, f32(3), ulp=4)
case("vander", jnp.vander, ints(-3, 3, (3,)))
case("vander_rising", lambda a: jnp.vander(a, 4, increasing=True), f32(3), ulp=4)
case("diagflat", lambda a: jnp.diagflat(a, 1), f32(2, 2))
case("fill_diagonal", lambda a: jnp.fill_diagonal(a, 7, inplace=False), f32(3, 4))
case("fill_diagonal_with", lambda a, b: jnp.fill_diagonal(a, b, inplace=False), f32(4, 3), f32(2))
case("fill_diagonal_with", lambda a, b: jnp.fill_diagonal(a, b, inplace=False), f32(3, 3, 3), f32(4))
case("put_along_axis", lambda a, i, v: jnp.put_along_axis(a, i, v, 1, inplace=False), z,
     np.array([[[2, 0, -1, 7]], [[1, 1, 0, -9]]], np.int32), f32(2, 1, 4), ulp=4)
case("put_along_axis", lambda a, i, v: jnp.put_along_axis(a, i, v, 1, inplace=False), z,
     np.array([[[2], [0]]], np.int32), np.float32(5))
case("put_along_axis", lambda a, i, v: jnp.put_along_axis(a, i, v, 1, inplace=False), np.zeros((2, 0), np.float32),
     np.array([[0, 2]], np.int32), np.float32(5))
case("unravel_index", lambda i: jnp.unravel_index(i, (2, 3, 4)), np.array([0, 5, 23, -1, 24, -30], np.int32))

for n, x in {"0": np.float32(2), "1": f32(3), "2": f32(2, 3), "3": f32(2, 3, 4)}.items():
    for k in (1, 2, 3):
        case(f"atleast_{k}d", getattr(jnp, f"atleast_{k}d"), x)
case("broadcast_arrays", lambda a, b: jnp.broadcast_arrays(a, b), f32(3, 1), ints(0, 3, (4,)))
case("append", jnp.append, f32(2, 2), f32(3))
case("append_1", lambda a, b: jnp.append(a, b, axis=1), f32(2, 2), f32(2, 1))
case("column_stack", lambda a, b: jnp.column_stack([a, b]), f32(3), f32(3, 2))
case("dstack", lambda a, b: jnp.dstack([a, b]), f32(3), f32(3))
case("dstack", lambda a, b: jnp.dstack([a, b]), f32(2, 3, 1), f32(2, 3))
case("vsplit", lambda a: jnp.vsplit(a, 2), f32(4, 2))
case("hsplit", lambda a: jnp.hsplit(a, 2), f32(4))
case("hsplit", lambda a: jnp.hsplit(a, 2), f32(1, 4, 2))
case("dsplit", lambda a: jnp.dsplit(a, 2), z)
case("flipud", jnp.flipud, z)
case("fliplr", jnp.fliplr, z)
for k in range(-1, 4):
    case("rot90_%d" % k, lambda a: jnp.rot90(a, k), z)
case("rot90_axes", lambda a: jnp.rot90(a, 1, (2, 1)), z)
case("matrix_transpose", jnp.matrix_transpose, z)
case("rollaxis", lambda a: jnp.rollaxis(a, 2, 1), z)
case("rollaxis_end", lambda a: jnp.rollaxis(a, 0, 3), z)
case("moveaxis_several", lambda a: jnp.moveaxis(a, (0, 2), (-1, 0)), z)
case("roll_flat", lambda a: jnp.roll(a, -5), z)
case("roll_several", lambda a: jnp.roll(a, (1, -2), (0, 2)), z)
case("repeat_flat", lambda a: jnp.repeat(a, 2), z, gscale=1)
case("repeat_counts", lambda a: jnp.repeat(a, jnp.array([2, 0, 3]), axis=1), z, gscale=1)
case("broadcast_in_dim", lambda a: lax.broadcast_in_dim(a, (2, 3, 4), (0, 2)), f32(2, 1), ulp=2, gscale=1)
case("collapse", lambda a: lax.collapse(a, 1), z)
case("collapse_front", lambda a: lax.collapse(a, 0, 2), z)
case("index_in_dim", lambda a: lax.index_in_dim(a, -1, 1), z)
case("slice_in_dim", lambda a: lax.slice_in_dim(a, 1, None, 2, 2), z)
for i in (0, 1, 2, -1, 9):
    case("dynamic_slice_in_dim", lambda a, i: lax.dynamic_slice_in_dim(a, i, 2, 1), z, np.int32(i))
    case("dynamic_index_in_dim", lambda a, i: lax.dynamic_index_in_dim(a, i, 1, False), z, np.int32(i))
    case("dynamic_update_slice_in_dim", lambda a, u, i: lax.dynamic_update_slice_in_dim(a, u, i, 1), z, f32(2, 2, 4),
         np.int32(i))
    case("dynamic_update_index_in_dim", lambda a, u, i: lax.dynamic_update_index_in_dim(a, u, i, 1), z, f32(2, 4),
         np.int32(i))

for n in ("nanargmax", "nanargmin"):
    for x in (odd, np.full((2, 3, 2), np.nan, np.float32), ints(0, 9, (2, 3, 4))):
        case(n, lambda a, f=getattr(jnp, n): f(a).astype(jnp.int32), x)
        case(n + "_axis1", lambda a, f=getattr(jnp, n): f(a, axis=1).astype(jnp.int32), x)
case("nancumsum", lambda a: jnp.nancumsum(a, axis=1), gaps, ulp=4, scale=1)
case("nancumprod", lambda a: jnp.nancumprod(a), np.where(np.isinf(gaps), 2, gaps), ulp=16, scale=1, gulp=64)
case("nanpercentile", lambda a: jnp.nanpercentile(a, 30, axis=0), gaps, ulp=4, scale=1, grad=False)
case("trapezoid", lambda a: jnp.trapezoid(a, dx=.5, axis=1), z, ulp=4, scale=1)
case("cov", jnp.cov, f32(3, 5), ulp=16, scale=1, gulp=64, gscale=1)
case("cov", jnp.cov, f32(5), ulp=16, scale=1)
case("cov", jnp.cov, np.zeros((2, 0), np.float32), grad=False)
case("corrcoef", jnp.corrcoef, f32(3, 5), ulp=16, scale=1, gulp=64, gscale=1)
groups = np.array([0, 2, 0, -1, 4, 2], np.int32)
for n in ("sum", "prod", "max", "min"):
    f = getattr(jax.ops, "segment_" + n)
    case("segment_" + n, lambda a, i, f=f: f(a, i, 4), f32(6, 2), groups, ulp=4, scale=1, grad=n != "prod")
    case("segment_" + n, lambda a, i, f=f: f(a, i, 4), ints(-9, 9, (6,)), groups)
case("vecdot", jnp.vecdot, f32(2, 1, 3), f32(4, 3), ulp=8, scale=1)
case("matvec", jnp.matvec, f32(2, 4, 3), f32(1, 3), ulp=8, scale=1)
case("vecmat", jnp.vecmat, f32(3), f32(2, 3, 4), ulp=8, scale=1)
case("cross", jnp.cross, f32(2, 3), f32(3), ulp=4, scale=1)
case("cross", jnp.cross, f32(2, 2), f32(2, 3), ulp=4, scale=1)
case("cross", jnp.cross, f32(2, 2), f32(2), ulp=4, scale=1)
case("cross_axis0", lambda a, b: jnp.cross(a, b, axis=0), f32(3, 2), f32(3, 2), ulp=4, scale=1)
for n in (0, 1, 3, 6):
    case(f"matrix_power_{n}", lambda a: jnp.linalg.matrix_power(a, n), f32(2, 3, 3) / 2, ulp=32, scale=1, gulp=128, gscale=4)
case("gather_default", lambda a, i: lax.gather(a, i[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
     f32(4, 3), groups, grad=False)  # theirs goes nowhere where the index was out of range
for n in ("xlogy", "xlog1py"):
    case(n, getattr(sp, n), ints(0, 5, (4,)), np.array([.5, 2, 3, 4], bf16), ulp=2, grad=False)
case("ldexp", jnp.ldexp, f32(2), np.array([True, False]))
for n in ("bessel_i0e", "bessel_i1e"):
    case(n + "_second", lambda a, f=getattr(lax, n): jax.vmap(jax.grad(jax.grad(f)))(a),
         np.array([np.inf, -np.inf, 9, 300, -2], np.float32), ulp=16, scale=1, grad=False)
case("map", lambda a: lax.map(lambda v: jnp.sin(v) * v.sum(), a), f32(4, 3), ulp=8, scale=1)
case("one_hot_axis0", lambda i: nn.one_hot(i, 4, dtype=jnp.float32, axis=0), np.array([[0, 3], [4, -1]], np.int32))
case("one_hot_axis0", lambda i: nn.one_hot(i, 4, dtype=jnp.float32, axis=0), np.array([0, -0.0, 1.5, 3, np.nan, np.inf], np.float32),
     grad=False)
case("one_hot", lambda i: nn.one_hot(i, 4, dtype=jnp.float32), np.array([0, 1.5, 3, np.nan], bf16), grad=False)
case("full_like_of", lambda a: [jnp.zeros_like(a, jnp.int32), jnp.ones_like(a, bool), jnp.full_like(a, 2.5, bf16)], f32(2))

init = nn.initializers
seed32 = jax.random.PRNGKey(42)
for n in ("glorot_uniform", "glorot_normal", "lecun_uniform", "lecun_normal", "he_uniform", "he_normal"):
    for dt in (jnp.float32, bf16, jnp.float16):
        case(f"init_{n}_{names[np.dtype(dt).name]}", lambda a: getattr(init, n)()(seed32, (3, 5, 4), dt), np.float32(0),
             ulp=8 if dt == jnp.float32 else 1, scale=.1 if dt == jnp.float32 else 0, grad=False)
case("init_scaling", lambda a: init.variance_scaling(3.0, "fan_geo_avg", "normal", in_axis=(0, 1), out_axis=2,
                                                     batch_axis=3)(seed32, (2, 3, 4, 2)), np.float32(0), ulp=8, scale=.1, grad=False)
case("init_fan_out", lambda a: init.variance_scaling(.5, "fan_out", "truncated_normal")(seed32, (2, 3, 4)), np.float32(0),
     ulp=8, scale=.1, grad=False)
case("init_uniform", lambda a: init.uniform(.5)(seed32, (5,)), np.float32(0), grad=False)
case("init_normal", lambda a: init.normal(.5)(seed32, (5,)), np.float32(0), ulp=8, grad=False)
case("init_truncated_normal", lambda a: init.truncated_normal(.5, lower=-1.0)(seed32, (5,)), np.float32(0), ulp=8, grad=False)
for n, dt in {"f16": jnp.float16, "bf16": bf16}.items():
    case("uniform_between_" + n, lambda a: jax.random.uniform(seed32, (40,), dt, .1, .8), np.float32(0), grad=False)
    case("truncated_normal_" + n, lambda a: jax.random.truncated_normal(seed32, .5, 1, (60,), dt), np.float32(0), grad=False)
nan_at = np.array([1, np.nan, 2, 0, 5], np.float32)
for n in ("max", "min"):
    case("segment_" + n, lambda a, i: getattr(jax.ops, "segment_" + n)(a, i, 4), nan_at, np.array([0, 0, 2, 2, 1], np.int32))
case("at_max_drop", lambda a, i, v: a.at[i].max(v, mode="drop"), np.array([1, 2, np.nan, 3], np.float32),
     np.array([0, 0, 1], np.int32), np.array([1, np.nan, 2], np.float32))
case("sinc", jnp.sinc, np.array([1e19, -1e30, 3e38, 0, -0.0], np.float32), ulp=8, scale=1)
case("bitwise_count", jnp.bitwise_count, np.array([True, False]))
case("init_constant", lambda a: init.constant(.3)(seed32, (2,), bf16), np.float32(0), grad=False)


def text(x):
    return json.dumps(x, separators=(",", ":"))


print('{"arrays": {\n' + ",\n".join(f'"{n}": {text(a)}' for n, a in arrays.items()) +
      '},\n"cases": [\n' + ",\n".join(text(c) for c in cases) + "\n]}")
