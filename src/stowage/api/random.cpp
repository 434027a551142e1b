#include "stowage/api/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/random_internal.h"
#include "stowage/api/reduce.h"

namespace stow::random {
namespace {

struct Words {
  Array hi, lo;
};

Array u32(uint32_t value) {
  return scalar_constant(value, DType::kU32);
}

Array rotate_left(const Array& x, uint32_t by) {
  return (x << u32(by)) | (x >> u32(32 - by));
}

// Threefry 2x32 with 20 rounds, element by element. Source: Salmon et al. 2011, section 3.3.
Words threefry(const Array& k0, const Array& k1, Words x) {
  constexpr uint32_t kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const Array keys[3] = {k0, k1, k0 ^ k1 ^ u32(0x1BD11BDA)};
  x = {x.hi + keys[0], x.lo + keys[1]};
  for (uint32_t i = 0; i < 5; ++i) {
    for (const uint32_t rotation : kRotations[i % 2]) {
      x.hi = x.hi + x.lo;
      x.lo = rotate_left(x.lo, rotation) ^ x.hi;
    }
    x = {x.hi + keys[(i + 1) % 3], x.lo + keys[(i + 2) % 3] + u32(i + 1)};
  }
  return x;
}

// The two words of the row-major index of each element.
Words counters(const Shape& shape) {
  const int64_t n = shape.elems();
  if (n <= int64_t{1} << 32) return {zeros({n}, DType::kU32), iota({n}, 0, DType::kU32)};
  const Array i = iota({n}, 0, DType::kU64);
  return {convert_to(i >> 32, DType::kU32), convert_to(i, DType::kU32)};
}

Words words(const Array& key, const Shape& shape) {
  return threefry(key[0], key[1], counters(shape));
}

// The mantissa's bits as a number in [0, 1); exact, so JAX's way by bit patterns gives the same.
Array unit_of_u32(const Array& bits) {
  return bitcast_convert_type((bits >> u32(9)) | u32(0x3f800000), DType::kF32) - 1.0;
}
Array unit_of_u64(const Array& bits) {
  const Array b =
      (bits >> scalar_constant(12, DType::kU64)) | scalar_constant(0x3ff0000000000000, DType::kU64);
  return bitcast_convert_type(b, DType::kF64) - 1.0;
}

// Uniform in [0, 1).
Array unit(const Array& key, const Shape& shape, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return unit_of_u32(bits(key, shape));
    case DType::kF64:
      return unit_of_u64(bits(key, shape, DType::kU64));
    case DType::kBF16:  // 8 bits drawn, 7 used
      return convert_to(convert_to((bits(key, shape) & u32(0xff)) >> u32(1), DType::kF32) / 128.0,
                        dtype);
    case DType::kF16:  // 16 bits drawn, 10 used
      return convert_to(
          convert_to((bits(key, shape) & u32(0xffff)) >> u32(6), DType::kF32) / 1024.0, dtype);
    default:
      trace_error_here("[random] expected a float dtype, got {}", dtype_name(dtype));
  }
}

Array both_words(const Words& w) {
  const Array high = convert_to(w.hi, DType::kU64) << scalar_constant(32, DType::kU64);
  return high | convert_to(w.lo, DType::kU64);
}

// u * (high - low) + low with one rounding for f32 and f16: JAX's compilers fuse the multiply and
// the add. In f64 the product is exact and the second rounding all but never shows. Where the width
// is a power of two the product is exact anyway.
Array stretch(const Array& u, double low, double high) {
  const DType dtype = u.dtype();
  if (dtype == DType::kF16) {
    const auto edge = [&](const Array& x) { return convert_to(x, DType::kF32); };
    const Array from = scalar_constant(low, dtype);
    const Array wide = scalar_constant(high, dtype) - from;
    return convert_to(edge(u) * edge(wide) + edge(from), dtype);
  }
  const auto narrow = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  const double width = dtype == DType::kF32 ? narrow(narrow(high) - narrow(low)) : high - low;
  int exponent = 0;
  if (dtype != DType::kF32 || std::frexp(width, &exponent) == 0.5)
    return u * scalar_constant(width, dtype) + scalar_constant(low, dtype);
  const Array wide = convert_to(u, DType::kF64) * width + narrow(low);
  return convert_to(wide, dtype);
}

// Numbers in [0, 1) as numbers in [low, high).
Array between(const Array& u, double low, double high) {
  return maximum(scalar_constant(low, u.dtype()), stretch(u, low, high));
}
// Numbers in [0, 1) as normal ones.
Array normal_of(const Array& u) {
  const DType dtype = u.dtype();
  return erf_inv(between(u, after_minus_one(dtype), 1)) * scalar_constant(std::sqrt(2.0), dtype);
}

// As many of the largest of logits and noise as the shape has places before the other axes.
Array drawn_apart(const Operand& key, const Array& logits, int64_t axis, const Shape& shape) {
  const int64_t n = logits.shape()[static_cast<int>(axis)];
  const int64_t lanes = n == 0 ? 1 : logits.size() / n;
  const int64_t draws = lanes == 0 ? 0 : shape.elems() / lanes;
  if (draws > n)
    trace_error_here(
        "[random] expected no more draws than there are without replacement, got {} of {}", draws,
        n);
  return run_as_one("categorical", [&] {
    const Array noisy = logits + gumbel(key, logits.shape(), logits.dtype());
    const Array last = moveaxis(noisy, static_cast<int>(axis), -1);
    return reshape(moveaxis(top_k(last, draws).second, -1, 0), shape.dims());
  });
}

}  // namespace

Array check_key(const Operand& key) {
  const Array k = to_array(key);
  if (k.dtype() != DType::kU32 || !(k.shape() == Shape{2}))
    trace_error_here("[random] expected a key u32[2], got {}", to_string(k.type()));
  return k;
}

double after_minus_one(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return -1 + 0x1p-53;
    case DType::kF32:
      return -1 + 0x1p-24;
    case DType::kF16:
      return -1 + 0x1p-11;
    default:
      return -1 + 0x1p-8;
  }
}

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::min();
    case DType::kF16:
      return 0x1p-14;
    default:
      return std::numeric_limits<float>::min();
  }
}

Keys split_keys(const Array& key, int64_t n) {
  const Words w = words(key, {n});
  return {w.hi, w.lo};
}

Keys child(const Keys& keys, uint32_t i) {
  const Words w = threefry(keys.hi, keys.lo, {u32(0), u32(i)});
  return {w.hi, w.lo};
}

Keys where_keys(const Array& condition, const Keys& a, const Keys& b) {
  return {where(condition, a.hi, b.hi), where(condition, a.lo, b.lo)};
}

Array uniform_each(const Keys& keys, DType dtype) {
  const Words w = threefry(keys.hi, keys.lo, {u32(0), u32(0)});
  return dtype == DType::kF64 ? unit_of_u64(both_words(w)) : unit_of_u32(w.hi ^ w.lo);
}

Array normal_each(const Keys& keys, DType dtype) {
  return normal_of(uniform_each(keys, dtype));
}

Array key(uint64_t seed) {
  const uint32_t both[2] = {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  const auto* first = reinterpret_cast<const std::byte*>(both);
  return make_literal(ArrayType{DType::kU32, {2}}, std::vector<std::byte>(first, first + 8));
}

Array split_array(const Operand& key, int64_t n) {
  const CallSiteScope site(key.at);
  if (n < 0) trace_error_here("[random] expected a split into 0 keys or more, got {}", n);
  const Array k = check_key(key);
  return run_as_one("split", [&] {
    const Words w = words(k, {n});
    return stack({w.hi, w.lo}, 1);
  });
}

std::vector<Array> split(const Operand& key, int n) {
  const CallSiteScope site(key.at);
  const Array all = split_array(key, n);
  std::vector<Array> keys;
  for (int i = 0; i < n; ++i) keys.push_back(all[i]);
  return keys;
}

Array fold_in(const Operand& key, const Operand& data) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key), d = to_array(data, {DType::kU32, false});
  if (d.rank() != 0)
    trace_error_here("[random] expected a scalar for fold_in, got {}", to_string(d.type()));
  return run_as_one("fold_in", [&] {
    const Words w = threefry(k[0], k[1], {u32(0), d});
    return stack({w.hi, w.lo});
  });
}

Array bits(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_unsigned_int(dtype))
    trace_error_here("[random] expected an unsigned dtype for bits, got {}", dtype_name(dtype));
  if (dtype == DType::kU64) {
    return run_as_one("bits", [&] {
      return reshape(both_words(words(k, shape)), shape.dims());
    });
  }
  const Array b = record1(OpKind::kRandomBits, ShapeParams{shape}, {k});
  return convert_to(b, dtype);
}

Array uniform(const Operand& key, const Shape& shape, DType dtype, double low, double high) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("uniform", [&] {
    const Array u = unit(k, shape, dtype);
    return low == 0 && high == 1 ? u : between(u, low, high);
  });
}

Array normal(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("normal", [&] {
    return normal_of(unit(k, shape, dtype));
  });
}

Array bernoulli(const Operand& key, const Operand& p, const Shape& shape) {
  const CallSiteScope site(key.at);
  const DType dtype = float_dtype(p, p).dtype;
  return uniform(key, shape, dtype) < spread("bernoulli", p, shape, dtype);
}

Array bernoulli(const Operand& key, const Operand& p) {
  const CallSiteScope site(key.at);
  return bernoulli(key, p, p.shape());
}

Array gumbel(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one(
      "gumbel", [&] { return -log(-log(uniform(k, shape, dtype, smallest_normal(dtype), 1))); });
}

Array categorical(const Operand& key, const Operand& logits, int axis,
                  const std::optional<Shape>& shape, bool replace) {
  const CallSiteScope site(key.at);
  const Array x = to_float_array(logits);
  const int64_t at = normalize_axis("categorical", axis, x.rank(), x.type());
  Dims others = x.shape().dims(), dims = shape ? shape->dims() : Dims();
  others.erase(others.begin() + at);
  if (!shape) dims = others;
  if (dims.size() < others.size() || !std::equal(others.rbegin(), others.rend(), dims.rbegin()))
    trace_error_here(
        "[random] expected a shape that ends in ({}) for categorical from {}, got ({})",
        to_string(Shape(others)), to_string(x.type()), to_string(Shape(dims)));
  const auto prefix = static_cast<int64_t>(dims.size() - others.size());
  if (!replace) return drawn_apart(key, x, at, Shape(dims));
  dims.insert(dims.begin() + prefix + at, x.shape()[static_cast<int>(at)]);
  return argmax(gumbel(key, Shape(dims), x.dtype()) + x, static_cast<int>(prefix + at));
}

}  // namespace stow::random
