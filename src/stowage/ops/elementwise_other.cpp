// Select, Convert, Bitcast.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

std::vector<ArrayType> infer_select(const InferContext& c) {
  expect<NoParams>(c, 3);
  if (c.operand(0).dtype != DType::kBool)
    c.error("the condition must be bool, got {}", to_string(c.operand(0)));
  check_same_dtypes(c, 1);
  check_same_shapes(c, 1);
  if (c.operand(0).shape != c.operand(1).shape)
    c.error("the condition {} differs in shape from {}", to_string(c.operand(0)),
            to_string(c.operand(1)));
  ArrayType type = strong_result_type(c, c.operand(1).dtype, c.operand(1).shape);
  type.weak = c.operand(1).weak && c.operand(2).weak;
  return {type};
}

Cotangents vjp_select(const VjpContext& c) {
  Cotangents result(3);
  const Val& condition = c.operands[0];
  if (c.needed[1]) result[1] = select(condition, c.ct(), zeros_like(c.ct()));
  if (c.needed[2]) result[2] = select(condition, zeros_like(c.ct()), c.ct());
  return result;
}

std::vector<ArrayType> infer_convert(const InferContext& c) {
  const auto& p = expect<DTypeParams>(c, 1);
  return {strong_result_type(c, p.dtype, c.operand(0).shape)};
}

Cotangents vjp_convert(const VjpContext& c) {
  const DType from = c.operands[0].dtype();
  if (!is_float(from) || !is_float(c.ct().dtype())) return no_cotangents(c);
  return cotangents(c, [&] { return convert(c.ct(), from); });
}

std::vector<ArrayType> infer_bitcast(const InferContext& c) {
  const auto& p = expect<DTypeParams>(c, 1);
  const ArrayType& x = c.operand(0);
  if ((x.dtype == DType::kBool) != (p.dtype == DType::kBool))
    c.error("expected both dtypes to be bool or neither, got {} to {}", to_string(x),
            dtype_name(p.dtype));
  if (dtype_bytes(x.dtype) != dtype_bytes(p.dtype))
    c.error("expected a dtype of the width of {}, got {}", to_string(x), dtype_name(p.dtype));
  return {strong_result_type(c, p.dtype, x.shape)};
}

}  // namespace

constinit const OpDef kSelect = elementwise(OpKind::kSelect, infer_select, vjp_select);
constinit const OpDef kConvert = elementwise(OpKind::kConvert, infer_convert, vjp_convert);
constinit const OpDef kBitcast = elementwise(OpKind::kBitcast, infer_bitcast, no_cotangents);

}  // namespace stow::ops
