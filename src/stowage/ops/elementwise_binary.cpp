// Elementwise ops of two operands: arithmetic, bits, comparisons.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// The cotangent of one operand of y = op(a, b).
using Rule = Val (*)(const Val& ct, const Val& a, const Val& b, const Val& y);

template <Rule A, Rule B>
Cotangents vjp(const VjpContext& c) {
  const auto call = [&](Rule rule) {
    return rule(c.ct(), c.operands[0], c.operands[1], c.results[0]);
  };
  return cotangents(
      c, [&] { return call(A); }, [&] { return call(B); });
}

template <Rule A, Rule B>
constexpr OpDef arithmetic(OpKind op) {
  return elementwise(op, infer_elementwise<2, Kinds::kNumeric>, vjp<A, B>);
}

Val same(const Val& ct, const Val&, const Val&, const Val&) { return ct; }
Val negated(const Val& ct, const Val&, const Val&, const Val&) { return -ct; }
Val mul_a(const Val& ct, const Val&, const Val& b, const Val&) { return ct * b; }
Val mul_b(const Val& ct, const Val& a, const Val&, const Val&) { return ct * a; }
Val div_a(const Val& ct, const Val&, const Val& b, const Val&) { return ct / b; }
// Through the result: a need not be kept, and b^2 cannot overflow.
Val div_b(const Val& ct, const Val&, const Val& b, const Val& y) { return -((ct / b) * y); }
Val rem_b(const Val& ct, const Val& a, const Val& b, const Val&) {
  const Val ratio = a / b;
  return -(ct * (sign(ratio) * floor(abs(ratio))));
}
Val pow_a(const Val& ct, const Val& a, const Val& b, const Val&) {
  return ct * (b * pow(a, b - 1.0));
}
Val pow_b(const Val& ct, const Val& a, const Val&, const Val& y) {
  return ct * (log(select(eq(a, zeros_like(a)), full_like(a, 1.0), a)) * y);
}
// y is the first operand, x the second: d atan2 = (x dy - y dx) / (x^2 + y^2).
Val atan2_a(const Val& ct, const Val& a, const Val& b, const Val&) {
  return ct * (b / (a * a + b * b));
}
Val atan2_b(const Val& ct, const Val& a, const Val& b, const Val&) {
  return -(ct * (a / (a * a + b * b)));
}
// The cotangent of one side of a comparison: all if it wins, half if both are equal, else nothing.
// A product, as in JAX: the loser's share of a cotangent that is not finite is NaN.
Val won(const Val& ct, const Val& wins, const Val& a, const Val& b) {
  const Val half = select(eq(a, b), full_like(ct, 0.5), zeros_like(ct));
  return ct * select(wins, full_like(ct, 1.0), half);
}
Val max_a(const Val& ct, const Val& a, const Val& b, const Val&) { return won(ct, gt(a, b), a, b); }
Val max_b(const Val& ct, const Val& a, const Val& b, const Val&) { return won(ct, lt(a, b), a, b); }
Val min_a(const Val& ct, const Val& a, const Val& b, const Val&) { return won(ct, lt(a, b), a, b); }
Val min_b(const Val& ct, const Val& a, const Val& b, const Val&) { return won(ct, gt(a, b), a, b); }

constexpr OpDef bits(OpKind op) {
  return elementwise(op, infer_elementwise<2, Kinds::kBits>, no_cotangents);
}
constexpr OpDef shift(OpKind op) {
  return elementwise(op, infer_elementwise<2, Kinds::kInteger>, no_cotangents);
}

std::vector<ArrayType> infer_compare(const InferContext& c) {
  expect<NoParams>(c, 2);
  check_same_dtypes(c);
  check_same_shapes(c);
  return {strong_result_type(c, DType::kBool, c.operand(0).shape)};
}
constexpr OpDef compare(OpKind op) { return elementwise(op, infer_compare, no_cotangents); }

}  // namespace

constinit const OpDef kAdd = arithmetic<same, same>(OpKind::kAdd);
constinit const OpDef kSub = arithmetic<same, negated>(OpKind::kSub);
constinit const OpDef kMul = arithmetic<mul_a, mul_b>(OpKind::kMul);
constinit const OpDef kDiv = arithmetic<div_a, div_b>(OpKind::kDiv);
constinit const OpDef kRem = arithmetic<same, rem_b>(OpKind::kRem);
constinit const OpDef kPow =
    elementwise(OpKind::kPow, infer_elementwise<2, Kinds::kNumeric>, vjp<pow_a, pow_b>);
constinit const OpDef kAtan2 =
    elementwise(OpKind::kAtan2, infer_elementwise<2, Kinds::kFloat>, vjp<atan2_a, atan2_b>);
constinit const OpDef kMax =
    elementwise(OpKind::kMax, infer_elementwise<2, Kinds::kAny>, vjp<max_a, max_b>);
constinit const OpDef kMin =
    elementwise(OpKind::kMin, infer_elementwise<2, Kinds::kAny>, vjp<min_a, min_b>);
constinit const OpDef kAnd = bits(OpKind::kAnd);
constinit const OpDef kOr = bits(OpKind::kOr);
constinit const OpDef kXor = bits(OpKind::kXor);
constinit const OpDef kShiftLeft = shift(OpKind::kShiftLeft);
constinit const OpDef kShiftRight = shift(OpKind::kShiftRight);
constinit const OpDef kEq = compare(OpKind::kEq);
constinit const OpDef kNe = compare(OpKind::kNe);
constinit const OpDef kLt = compare(OpKind::kLt);
constinit const OpDef kLe = compare(OpKind::kLe);
constinit const OpDef kGt = compare(OpKind::kGt);
constinit const OpDef kGe = compare(OpKind::kGe);

}  // namespace stow::ops
