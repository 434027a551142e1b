// Elementwise ops of one operand. Gradients use the result where that spares keeping the operand.
#include <numbers>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// The cotangent of the operand from that of the result, the operand x and the result y.
using Rule = Val (*)(const Val& ct, const Val& x, const Val& y);

template <Rule R>
Cotangents vjp(const VjpContext& c) {
  return cotangents(c, [&] { return R(c.ct(), c.operands[0], c.results[0]); });
}

template <Rule R>
constexpr OpDef float_unary(OpKind op) {
  return elementwise(op, infer_elementwise<1, Kinds::kFloat>, vjp<R>);
}

Val neg_ct(const Val& ct, const Val&, const Val&) { return -ct; }
// 1 at zero, of either sign, as JAX has it.
Val abs_ct(const Val& ct, const Val& x, const Val&) {
  return select(ge(x, zeros_like(x)), ct, -ct);
}
Val exp_ct(const Val& ct, const Val&, const Val& y) { return ct * y; }
Val expm1_ct(const Val& ct, const Val&, const Val& y) { return ct * (y + 1.0); }
Val log_ct(const Val& ct, const Val& x, const Val&) { return ct / x; }
Val log1p_ct(const Val& ct, const Val& x, const Val&) { return ct / (x + 1.0); }
// (1 + y)(1 - y), not 1 - y^2: no cancellation where y is near 1.
Val tanh_ct(const Val& ct, const Val&, const Val& y) { return (ct + ct * y) * (1.0 - y); }
Val sin_ct(const Val& ct, const Val& x, const Val&) { return ct * cos(x); }
Val cos_ct(const Val& ct, const Val& x, const Val&) { return -(ct * sin(x)); }
Val tan_ct(const Val& ct, const Val&, const Val& y) { return ct * (y * y + 1.0); }
Val asin_ct(const Val& ct, const Val& x, const Val&) { return ct * rsqrt(1.0 - x * x); }
Val acos_ct(const Val& ct, const Val& x, const Val&) { return -(ct * rsqrt(1.0 - x * x)); }
Val atan_ct(const Val& ct, const Val& x, const Val&) { return ct / (x * x + 1.0); }
Val sinh_ct(const Val& ct, const Val& x, const Val&) { return ct * unary(OpKind::kCosh, x); }
Val cosh_ct(const Val& ct, const Val& x, const Val&) { return ct * unary(OpKind::kSinh, x); }
Val asinh_ct(const Val& ct, const Val& x, const Val&) { return ct * rsqrt(x * x + 1.0); }
Val acosh_ct(const Val& ct, const Val& x, const Val&) {
  // At 1 the sum is a constant, lest the second derivative, which is infinite there, be NaN.
  const Val one = full_like(x, 1.0), sum = select(eq(x, one), full_like(x, 2.0), x + 1.0);
  return ct * rsqrt((x - 1.0) * sum);
}
// As products of what has one place where it is infinite or 0, so that second derivatives have it
// alone.
Val atanh_ct(const Val& ct, const Val& x, const Val&) { return (ct / (x + 1.0)) / (1.0 - x); }
Val cbrt_ct(const Val& ct, const Val&, const Val& y) {
  const Val r = full_like(y, 1.0) / y;
  return ct * (full_like(y, 1.0 / 3) * (r * r));
}
Val sqrt_ct(const Val& ct, const Val&, const Val& y) { return ct * (full_like(y, 0.5) / y); }
Val rsqrt_ct(const Val& ct, const Val&, const Val& y) { return ct * ((y * -0.5) * (y * y)); }
Val logistic_ct(const Val& ct, const Val&, const Val& y) { return ct * (y * (1.0 - y)); }
Val erf_ct(const Val& ct, const Val& x, const Val&) {
  return (ct * exp(-(x * x))) * (2.0 * std::numbers::inv_sqrtpi);
}
Val erfc_ct(const Val& ct, const Val& x, const Val& y) { return -erf_ct(ct, x, y); }
Val erf_inv_ct(const Val& ct, const Val&, const Val& y) {
  return (ct * exp(y * y)) * (0.5 / std::numbers::inv_sqrtpi);
}

std::vector<ArrayType> infer_is_finite(const InferContext& c) {
  expect<NoParams>(c, 1);
  check_kinds(c, 0, Kinds::kFloat);
  return {strong_result_type(c, DType::kBool, c.operand(0).shape)};
}

}  // namespace

constinit const OpDef kNeg =
    elementwise(OpKind::kNeg, infer_elementwise<1, Kinds::kNumeric>, vjp<neg_ct>);
constinit const OpDef kAbs =
    elementwise(OpKind::kAbs, infer_elementwise<1, Kinds::kSigned>, vjp<abs_ct>);
constinit const OpDef kSign =
    elementwise(OpKind::kSign, infer_elementwise<1, Kinds::kNumeric>, no_cotangents);
constinit const OpDef kFloor =
    elementwise(OpKind::kFloor, infer_elementwise<1, Kinds::kFloat>, no_cotangents);
constinit const OpDef kCeil =
    elementwise(OpKind::kCeil, infer_elementwise<1, Kinds::kFloat>, no_cotangents);
constinit const OpDef kRound =
    elementwise(OpKind::kRound, infer_elementwise<1, Kinds::kFloat>, no_cotangents);
constinit const OpDef kExp = float_unary<exp_ct>(OpKind::kExp);
constinit const OpDef kExpm1 = float_unary<expm1_ct>(OpKind::kExpm1);
constinit const OpDef kLog = float_unary<log_ct>(OpKind::kLog);
constinit const OpDef kLog1p = float_unary<log1p_ct>(OpKind::kLog1p);
constinit const OpDef kTanh = float_unary<tanh_ct>(OpKind::kTanh);
constinit const OpDef kSin = float_unary<sin_ct>(OpKind::kSin);
constinit const OpDef kCos = float_unary<cos_ct>(OpKind::kCos);
constinit const OpDef kTan = float_unary<tan_ct>(OpKind::kTan);
constinit const OpDef kAsin = float_unary<asin_ct>(OpKind::kAsin);
constinit const OpDef kAcos = float_unary<acos_ct>(OpKind::kAcos);
constinit const OpDef kAtan = float_unary<atan_ct>(OpKind::kAtan);
constinit const OpDef kSinh = float_unary<sinh_ct>(OpKind::kSinh);
constinit const OpDef kCosh = float_unary<cosh_ct>(OpKind::kCosh);
constinit const OpDef kAsinh = float_unary<asinh_ct>(OpKind::kAsinh);
constinit const OpDef kAcosh = float_unary<acosh_ct>(OpKind::kAcosh);
constinit const OpDef kAtanh = float_unary<atanh_ct>(OpKind::kAtanh);
constinit const OpDef kCbrt = float_unary<cbrt_ct>(OpKind::kCbrt);
constinit const OpDef kErfc = float_unary<erfc_ct>(OpKind::kErfc);
constinit const OpDef kSqrt = float_unary<sqrt_ct>(OpKind::kSqrt);
constinit const OpDef kRsqrt = float_unary<rsqrt_ct>(OpKind::kRsqrt);
constinit const OpDef kLogistic = float_unary<logistic_ct>(OpKind::kLogistic);
constinit const OpDef kErf = float_unary<erf_ct>(OpKind::kErf);
constinit const OpDef kErfInv = float_unary<erf_inv_ct>(OpKind::kErfInv);
constinit const OpDef kIsFinite = elementwise(OpKind::kIsFinite, infer_is_finite, no_cotangents);
constinit const OpDef kPopulationCount = elementwise(
    OpKind::kPopulationCount, infer_elementwise<1, Kinds::kInteger>, no_cotangents);
constinit const OpDef kCountLeadingZeros = elementwise(
    OpKind::kCountLeadingZeros, infer_elementwise<1, Kinds::kInteger>, no_cotangents);
constinit const OpDef kNot =
    elementwise(OpKind::kNot, infer_elementwise<1, Kinds::kBits>, no_cotangents);

}  // namespace stow::ops
