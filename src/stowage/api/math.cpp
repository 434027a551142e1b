#include "stowage/api/math.h"

#include <cmath>
#include <limits>

#include "stowage/api/custom_vjp.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

Array float_op(OpKind op, const Operand& x) {
  const CallSiteScope site(x.at);
  return record1(op, NoParams{}, {to_float_array(x)});
}

// Bool arrays are added and multiplied as integers by nobody; NumPy's rules for them are or, and.
Array arithmetic(OpKind op, const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  if (promote(a.dtype(), b.dtype()).dtype == DType::kBool) {
    if (op == OpKind::kAdd || op == OpKind::kMax) return binary_op(OpKind::kOr, a, b);
    if (op == OpKind::kMul || op == OpKind::kMin) return binary_op(OpKind::kAnd, a, b);
  }
  return binary_op(op, a, b);
}

Array rounding(OpKind op, const Operand& x) {
  const CallSiteScope site(x.at);
  return is_float(x.dtype().dtype) ? unary_op(op, x) : to_array(x);
}

Array as_bool(const Operand& x) {
  return x.dtype().dtype == DType::kBool ? to_array(x) : binary_op(OpKind::kNe, x, 0);
}

// Integer divisors with 1 for 0: numpy's remainders by zero are 0.
Array unless_zero(const Array& y) {
  return is_integer(y.dtype()) ? where(y == 0, ones_like(y), y) : y;
}

bool are_bools(const Operand& a, const Operand& b) {
  return promote(a.dtype(), b.dtype()).dtype == DType::kBool;
}

// The dtype that two operands are divided, raised or shifted in: bools count as i32.
WeakDType number_dtype(const Operand& a, const Operand& b) {
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  return are_bools(a, b) ? WeakDType{DType::kI32, dtype.weak} : dtype;
}

Array number_op(OpKind op, const Operand& a, const Operand& b) {
  if (!are_bools(a, b)) return binary_op(op, a, b);
  const CallSiteScope site(a.at);
  const WeakDType dtype = number_dtype(a, b);
  return binary_op(op, to_array(a, dtype), to_array(b, dtype));
}

// x to a non-negative integer power by squaring, as lax.integer_pow.
Array integer_power(const Array& x, int64_t n) {
  Array result, base = x;
  for (; n > 0; n >>= 1) {
    if (n & 1) result = result.empty() ? base : multiply(result, base);
    if (n > 1) base = multiply(base, base);
  }
  return result;
}

// 1 / x^-n. By that quotient its gradient would take the square of x^-n, which overflows; so it has
// a rule, and so has its gradient, as a rule's own rule is traced at once, up to the third.
Array negative_power(const Array& x, int64_t n, int rules = 3) {
  const auto value = [n](const Array& a) { return reciprocal(integer_power(a, -n)); };
  if (n == -1 || rules == 0) return value(x);
  const auto backward = [n, rules](const Array& a, const Array& ct) {
    return ct * (negative_power(a, n - 1, rules - 1) * static_cast<double>(n));
  };
  return custom_vjp(
      value, [value](const Array& a) { return std::pair(value(a), a); }, backward)(x);
}

// log(exp(x) + exp(y)) and JAX's rule for it: infinities count as 0 there, so that none meets
// another.
struct LogSum {
  Array x, y, result;
};
STOW_TREE(LogSum, x, y, result);
Array log_sum(const Array& x, const Array& y) {
  const Array delta = x - y, apart = where(isnan(delta), 0.0, delta);
  // -|delta| by a minimum, whose gradient at 0 is 0: in second derivatives both get half there.
  return where(isnan(delta), x + y, maximum(x, y) + log1p(exp(minimum(apart, -apart))));
}
std::pair<Array, LogSum> log_sum_forward(const Array& x, const Array& y) {
  const Array result = log_sum(x, y);
  return {result, {x, y, result}};
}
std::pair<Array, Array> log_sum_backward(const LogSum& of, const Array& ct) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto below_inf = [&](const Array& a) { return where(a == inf, 0.0, a); };
  // Two terms of -inf have no share, neither of them.
  const Array result = where(abs(of.result) == inf, 0.0, of.result);
  return {ct * exp(below_inf(of.x) - result), ct * exp(below_inf(of.y) - result)};
}

}  // namespace

Array add(const Operand& a, const Operand& b) {
  return arithmetic(OpKind::kAdd, a, b);
}
Array subtract(const Operand& a, const Operand& b) {
  return arithmetic(OpKind::kSub, a, b);
}
Array multiply(const Operand& a, const Operand& b) {
  return arithmetic(OpKind::kMul, a, b);
}
Array maximum(const Operand& a, const Operand& b) {
  return arithmetic(OpKind::kMax, a, b);
}
Array minimum(const Operand& a, const Operand& b) {
  return arithmetic(OpKind::kMin, a, b);
}
Array fmod(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = number_dtype(a, b);
  if (!is_integer(dtype.dtype)) return arithmetic(OpKind::kRem, a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  // A remainder of bools by false is the dividend, in JAX too.
  return run_as_one(
      "fmod", [&] { return binary_op(OpKind::kRem, x, are_bools(a, b) ? y : unless_zero(y)); });
}

Array divide(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  if (is_float(dtype.dtype)) return binary_op(OpKind::kDiv, a, b);
  return binary_op(OpKind::kDiv, to_array(a, {DType::kF32, dtype.weak}),
                   to_array(b, {DType::kF32, dtype.weak}));
}

Array floor_divide(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = number_dtype(a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("floor_divide", [&] {
    const Array r = binary_op(OpKind::kRem, x, y);
    if (is_float(dtype.dtype)) {
      // The multiple of y that leaves the remainder; by zero, x / 0.
      const Array q = where(y == 0, x, x - r) / y;
      return round(where(logical_and(r != 0, sign(y) != sign(r)), q - 1, q));
    }
    const Array q = binary_op(OpKind::kDiv, x, y);
    if (is_unsigned_int(dtype.dtype)) return q;
    return where(logical_and(r != 0, sign(x) != sign(y)), q - 1, q);
  });
}

Array remainder(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = number_dtype(a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("remainder", [&] {
    const Array r = binary_op(OpKind::kRem, x, unless_zero(y));
    if (is_unsigned_int(dtype.dtype)) return r;
    return where(logical_and(r != 0, (r < 0) != (y < 0)), r + y, r);
  });
}

Array pow(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  if (b.is_scalar() && !is_float(b.scalar().dtype)) {
    const int64_t n = b.scalar().integer;
    const WeakDType dtype = promote(a.dtype(), {DType::kI32, true});
    const Array x = to_array(a, dtype);
    if (n == 0) return with_weak(broadcast_array(to_array(1, dtype), x.shape()), dtype.weak);
    if (n > 0) return run_as_one("pow", [&] { return integer_power(x, n); });
    if (!is_float(dtype.dtype))
      trace_error_here(
          "[pow] expected a power of 0 or more for {}, got {}; convert it to a float (astype)",
          to_string(x.type()), n);
    return run_as_one("pow", [&] { return negative_power(x, n); });
  }
  const WeakDType dtype = number_dtype(a, b);
  if (!is_float(dtype.dtype) || is_float(b.dtype().dtype)) return number_op(OpKind::kPow, a, b);
  // To the whole power 0 it is a constant, also where x is 0.
  return run_as_one("pow", [&] {
    const Array n = to_array(b, dtype);
    return binary_op(OpKind::kPow, where(n == 0, 1, to_array(a, dtype)), n);
  });
}

Array logaddexp(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("logaddexp", [&] {
    const Shape shape = broadcast_shapes("logaddexp", x.type(), y.type());
    return custom_vjp(log_sum, log_sum_forward, log_sum_backward)(broadcast_array(x, shape),
                                                                  broadcast_array(y, shape));
  });
}

Array clip(const Operand& x, const Operand& low, const Operand& high) {
  const CallSiteScope site(x.at);
  return minimum(maximum(x, low), high);
}

Array where(const Operand& condition, const Operand& a, const Operand& b) {
  const CallSiteScope site(condition.at);
  const Array c = as_bool(condition);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const ArrayType ta{.dtype = dtype.dtype, .shape = a.shape()};
  const ArrayType tb{.dtype = dtype.dtype, .shape = b.shape()};
  const ArrayType joint{.dtype = dtype.dtype, .shape = broadcast_shapes("where", ta, tb)};
  const Shape shape = broadcast_shapes("where", c.type(), joint);
  const Operand x = promoted_scalar(a, dtype), y = promoted_scalar(b, dtype);
  const Array result = run_as_one("where", [&] {
    return record1(OpKind::kSelect, NoParams{},
                   {broadcast_array(c, shape), broadcast_array(to_array(x, dtype), shape),
                    broadcast_array(to_array(y, dtype), shape)});
  });
  return with_weak(result, dtype.weak);
}

Array negative(const Operand& x) {
  return unary_op(OpKind::kNeg, x);
}
Array abs(const Operand& x) {
  return is_unsigned_int(x.dtype().dtype) || x.dtype().dtype == DType::kBool
             ? to_array(x)
             : unary_op(OpKind::kAbs, x);
}
Array sign(const Operand& x) {
  return unary_op(OpKind::kSign, x);
}
Array square(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.dtype() == DType::kBool) return convert_to(a, DType::kI32);
  return multiply(a, a);
}
Array floor(const Operand& x) {
  return rounding(OpKind::kFloor, x);
}
Array ceil(const Operand& x) {
  return rounding(OpKind::kCeil, x);
}
Array round(const Operand& x, int decimals) {
  if (decimals == 0) return rounding(OpKind::kRound, x);
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) {
    if (decimals < 0)
      trace_error_here("[round] expected 0 decimals or more for {}, got {}", to_string(a.type()),
                       decimals);
    return a;
  }
  // A factor beyond the dtype's range leaves no digits to round.
  const double factor = std::pow(10.0, decimals);
  if (factor > largest_float(a.dtype())) return a;
  return run_as_one("round", [&] {
    const Array f = a.dtype() == DType::kF16 ? convert_to(a, DType::kF32) : a;
    return convert_to(rounding(OpKind::kRound, f * factor) / factor, a.dtype());
  });
}

Array exp(const Operand& x) {
  return float_op(OpKind::kExp, x);
}
Array expm1(const Operand& x) {
  return float_op(OpKind::kExpm1, x);
}
Array log(const Operand& x) {
  return float_op(OpKind::kLog, x);
}
Array log1p(const Operand& x) {
  return float_op(OpKind::kLog1p, x);
}
Array sqrt(const Operand& x) {
  return float_op(OpKind::kSqrt, x);
}
Array rsqrt(const Operand& x) {
  return float_op(OpKind::kRsqrt, x);
}
Array tanh(const Operand& x) {
  return float_op(OpKind::kTanh, x);
}
Array sin(const Operand& x) {
  return float_op(OpKind::kSin, x);
}
Array cos(const Operand& x) {
  return float_op(OpKind::kCos, x);
}
Array erf(const Operand& x) {
  return float_op(OpKind::kErf, x);
}
Array erf_inv(const Operand& x) {
  return float_op(OpKind::kErfInv, x);
}
Array logistic(const Operand& x) {
  return float_op(OpKind::kLogistic, x);
}
Array sigmoid(const Operand& x) {
  return float_op(OpKind::kLogistic, x);
}

Array reciprocal(const Operand& x) {
  const CallSiteScope site(x.at);
  return divide(1, to_float_array(x));
}

Array isfinite(const Operand& x) {
  const CallSiteScope site(x.at);
  return float_op(OpKind::kIsFinite, x);
}
Array isnan(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return a != a;
}

Array logical_not(const Operand& x) {
  const CallSiteScope site(x.at);
  return unary_op(OpKind::kNot, as_bool(x));
}
Array logical_and(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  return binary_op(OpKind::kAnd, as_bool(a), as_bool(b));
}
Array logical_or(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  return binary_op(OpKind::kOr, as_bool(a), as_bool(b));
}

Array astype(const Operand& x, DType dtype) {
  const CallSiteScope site(x.at);
  if (dtype == DType::kBool) return as_bool(x);
  return to_array(x, {dtype, false});
}

Array bitcast_convert_type(const Operand& x, DType dtype) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.dtype() == dtype) return a;
  return with_weak(record1(OpKind::kBitcast, DTypeParams{dtype}, {a}), false);
}

Array stop_gradient(const Operand& x) {
  return unary_op(OpKind::kStopGradient, x);
}
Array optimization_barrier(const Operand& x) {
  return unary_op(OpKind::kOptimizationBarrier, x);
}

DType result_type(const Operand& a, const Operand& b) {
  return promote(a.dtype(), b.dtype()).dtype;
}

Array operator+(const Operand& a, const Operand& b) {
  return add(a, b);
}
Array operator-(const Operand& a, const Operand& b) {
  return subtract(a, b);
}
Array operator*(const Operand& a, const Operand& b) {
  return multiply(a, b);
}
Array operator/(const Operand& a, const Operand& b) {
  return divide(a, b);
}
Array operator%(const Operand& a, const Operand& b) {
  return remainder(a, b);
}
Array operator-(const Operand& a) {
  return negative(a);
}
Array operator&(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kAnd, a, b);
}
Array operator|(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kOr, a, b);
}
Array operator^(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kXor, a, b);
}
Array operator~(const Operand& a) {
  return unary_op(OpKind::kNot, a);
}
Array operator<<(const Operand& a, const Operand& b) {
  return number_op(OpKind::kShiftLeft, a, b);
}
Array operator>>(const Operand& a, const Operand& b) {
  return number_op(OpKind::kShiftRight, a, b);
}
Array operator==(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kEq, a, b);
}
Array operator!=(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kNe, a, b);
}
Array operator<(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kLt, a, b);
}
Array operator<=(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kLe, a, b);
}
Array operator>(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kGt, a, b);
}
Array operator>=(const Operand& a, const Operand& b) {
  return binary_op(OpKind::kGe, a, b);
}
Array& operator+=(Array& a, const Operand& b) {
  return a = Operand(a, b.at.file, b.at.line) + b;
}
Array& operator-=(Array& a, const Operand& b) {
  return a = Operand(a, b.at.file, b.at.line) - b;
}
Array& operator*=(Array& a, const Operand& b) {
  return a = Operand(a, b.at.file, b.at.line) * b;
}
Array& operator/=(Array& a, const Operand& b) {
  return a = Operand(a, b.at.file, b.at.line) / b;
}

}  // namespace stow
