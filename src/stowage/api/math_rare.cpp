// The rarer elementwise functions: the second half of math.h.
#include <limits>
#include <numbers>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"
#include "stowage/core/scalar.h"

namespace stow {
namespace {

Array float_op(OpKind op, const Operand& x) {
  const CallSiteScope site(x.at);
  return record1(op, NoParams{}, {to_float_array(x)});
}

// As integers of one width with the float: the pattern of a neighbour is one step away.
Array step_towards(const Array& x, const Array& y, DType bits, int64_t step) {
  const DType dtype = x.dtype();
  const auto constant = [&](int64_t v) { return scalar_constant(v, bits); };
  const Array pattern = bitcast_convert_type(x, bits);
  const Array away = (x < y) == (x > 0);
  const Array moved = pattern + where(away, constant(step), constant(-step));
  const int64_t sign = bits == DType::kI64 ? std::numeric_limits<int64_t>::min()
                                           : int64_t{std::numeric_limits<int32_t>::min()};
  const Array smallest = where(y > 0, constant(step), constant(sign) + constant(step));
  const Array next = bitcast_convert_type(where(x == 0, smallest, moved), dtype);
  return where(logical_or(isnan(x), isnan(y)), x + y, where(x == y, y, next));
}

}  // namespace

Array mod(const Operand& a, const Operand& b) {
  return remainder(a, b);
}
Array div(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kDiv, a, b);
}
Array rem(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kRem, a, b);
}
Array integer_pow(const Operand& x, int n) {
  const CallSiteScope site(x.at);
  return pow(x, n);
}

Array tan(const Operand& x) {
  return float_op(OpKind::kTan, x);
}
Array asin(const Operand& x) {
  return float_op(OpKind::kAsin, x);
}
Array acos(const Operand& x) {
  return float_op(OpKind::kAcos, x);
}
Array atan(const Operand& x) {
  return float_op(OpKind::kAtan, x);
}
Array sinh(const Operand& x) {
  return float_op(OpKind::kSinh, x);
}
Array cosh(const Operand& x) {
  return float_op(OpKind::kCosh, x);
}
Array asinh(const Operand& x) {
  return float_op(OpKind::kAsinh, x);
}
Array acosh(const Operand& x) {
  return float_op(OpKind::kAcosh, x);
}
Array atanh(const Operand& x) {
  return float_op(OpKind::kAtanh, x);
}
Array cbrt(const Operand& x) {
  return float_op(OpKind::kCbrt, x);
}
Array erfc(const Operand& x) {
  return float_op(OpKind::kErfc, x);
}

Array atan2(const Operand& y, const Operand& x) {
  const CallSiteScope site(y.at);
  const WeakDType dtype = float_dtype(y, x);
  return binary_op(OpKind::kAtan2, to_array(y, dtype), to_array(x, dtype));
}

Array exp2(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("exp2", [&] { return pow(full_like(a, 2.0), a); });
}
Array log2(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("log2", [&] { return log(a) / std::numbers::ln2; });
}
Array log10(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("log10", [&] { return log(a) / std::numbers::ln10; });
}

// The sign of a negative fraction stays on its zero.
Array trunc(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) return a;
  return run_as_one("trunc", [&] { return where(a < 0, ceil(a), floor(a)); });
}

Array hypot(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, b);
  const Array x = abs(to_array(a, dtype)), y = abs(to_array(b, dtype));
  return run_as_one("hypot", [&] {
    const double inf = std::numeric_limits<double>::infinity();
    const Array most = maximum(x, y), least = minimum(x, y);
    const Array scale = where(most == 0, ones_like(most), most);
    const Array ratio = least / scale;
    const Array finite = most * sqrt(1 + ratio * ratio);
    return where(logical_or(x == inf, y == inf), full_like(finite, inf), finite);
  });
}

Array nextafter(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("nextafter", [&] {
    const Shape shape = broadcast_shapes("nextafter", x.type(), y.type());
    const Array from = stop_gradient(broadcast_array(x, shape));
    const Array to = stop_gradient(broadcast_array(y, shape));
    switch (dtype.dtype) {
      case DType::kF64:
        return step_towards(from, to, DType::kI64, 1);
      case DType::kF32:
        return step_towards(from, to, DType::kI32, 1);
      case DType::kBF16: {  // the upper half of an f32
        const Array wide = step_towards(convert_to(from, DType::kF32), convert_to(to, DType::kF32),
                                        DType::kI32, 1 << 16);
        return convert_to(wide, DType::kBF16);
      }
      case DType::kF16: {
        // In an f32: the 14th bit from below, but a fixed step near 0, and nothing above 65504.
        const Array x32 = convert_to(from, DType::kF32), y32 = convert_to(to, DType::kF32);
        const Array tiny = where(y32 > x32, 0x1p-24f, -0x1p-24f);
        const Array next = where(abs(x32) <= 0x1p-14f, x32 + tiny,
                                 step_towards(x32, y32, DType::kI32, 1 << 13));
        const Array down = where(logical_and(isinf(x32), x32 != y32), sign(x32) * 65504.0, next);
        return convert_to(where(isnan(y32), y32, where(x32 == y32, y32, down)), DType::kF16);
      }
      default:
        trace_error_here("[nextafter] expected floats, got {}", dtype_name(dtype.dtype));
    }
  });
}

Array clamp(const Operand& low, const Operand& x, const Operand& high) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const WeakDType dtype{a.dtype(), a.type().weak};
  const Array l = to_array(low, dtype), h = to_array(high, dtype);
  return run_as_one("clamp", [&] {
    const Array kept = stop_gradient(minimum(maximum(a, l), h));
    const Array above = logical_and(h < a, l == l);  // a bound that is NaN wins
    const Array out_of_range = where(logical_and(l > a, l < h), l, where(above, h, kept));
    return where(logical_and(a > l, a < h), a, out_of_range);
  });
}

Array isinf(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) return full(a.shape(), false);
  return run_as_one("isinf", [&] { return abs(a) == std::numeric_limits<double>::infinity(); });
}

Array nan_to_num(const Operand& x, double nan, std::optional<double> posinf,
                 std::optional<double> neginf) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) return a;
  const double most = largest_float(a.dtype()), inf = std::numeric_limits<double>::infinity();
  return run_as_one("nan_to_num", [&] {
    const Array finite = where(isnan(a), full_like(a, nan), a);
    const Array capped = where(finite == inf, full_like(a, posinf.value_or(most)), finite);
    return where(capped == -inf, full_like(a, neginf.value_or(-most)), capped);
  });
}

Array isclose(const Operand& a, const Operand& b, double rtol, double atol, bool equal_nan) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("isclose", [&] {
    if (!is_float(dtype.dtype))
      return abs(astype(x, DType::kF32) - astype(y, DType::kF32)) <=
             abs(astype(y, DType::kF32)) * rtol + atol;
    const Array near = abs(x - y) <= abs(y) * rtol + atol;
    const Array both = logical_and(isfinite(x), isfinite(y));
    const Array result = logical_or(logical_and(both, near), x == y);
    return equal_nan ? logical_or(result, logical_and(isnan(x), isnan(y))) : result;
  });
}

Array logical_xor(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  return binary_op(OpKind::kXor, astype(a, DType::kBool), astype(b, DType::kBool));
}

Array population_count(const Operand& x) {
  return unary_op(OpKind::kPopulationCount, x);
}
Array bitwise_count(const Operand& x) {
  const CallSiteScope site(x.at);
  return run_as_one("bitwise_count", [&] {
    const Array n = x.dtype().dtype == DType::kBool ? astype(x, DType::kU8) : abs(x);
    return astype(population_count(n), DType::kU8);
  });
}
Array clz(const Operand& x) {
  return unary_op(OpKind::kCountLeadingZeros, x);
}

Array shift_right_logical(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const Array x = to_array(a, dtype), by = to_array(b, dtype);
  const auto as_unsigned = [](const Array& v) {
    return bitcast_convert_type(v, dtype_bytes(v.dtype()) == 8   ? DType::kU64
                                   : dtype_bytes(v.dtype()) == 4 ? DType::kU32
                                                                 : DType::kU8);
  };
  if (!is_signed_int(dtype.dtype)) return binary_op(OpKind::kShiftRight, x, by);
  return run_as_one("shift_right_logical", [&] {
    return with_weak(bitcast_convert_type(as_unsigned(x) >> as_unsigned(by), dtype.dtype),
                     dtype.weak);
  });
}

}  // namespace stow
