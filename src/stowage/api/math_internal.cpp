#include "stowage/api/math_internal.h"

#include <algorithm>
#include <limits>

#include "stowage/api/memory.h"

namespace stow {
namespace {

Array scalar_array(const ScalarValue& value, WeakDType dtype) {
  const ArrayType type{.dtype = dtype.dtype, .weak = dtype.weak};
  if (Trace* trace = current_trace())
    return trace->wrap(trace->constant(type, scalar_bytes(value, dtype.dtype)),
                       current_provenance());
  return make_literal(type, scalar_bytes(value, dtype.dtype));
}

// A scalar for an array's dtype. Sizes and counts are of 64 bits, and are not cut off in silence
// where integers have fewer: as in JAX a scalar must fit an i32, or the dtype itself.
Array scalar_for(const ScalarValue& value, WeakDType dtype) {
  const bool fits = value.integer == static_cast<int32_t>(value.integer) ||
                    (dtype.dtype == DType::kU32 &&
                     value.integer == static_cast<int64_t>(static_cast<uint32_t>(value.integer)));
  if (!fits && is_integer(value.dtype) && is_integer(dtype.dtype) && dtype_bytes(dtype.dtype) < 8)
    trace_error_here(
        "the scalar {} does not fit {}; convert the array (astype) or the scalar first",
        value.integer, dtype_name(dtype.dtype));
  return scalar_array(value, dtype);
}

bool is_compare(OpKind op) {
  return op == OpKind::kEq || op == OpKind::kNe || op == OpKind::kLt || op == OpKind::kLe ||
         op == OpKind::kGt || op == OpKind::kGe;
}

}  // namespace

Array scalar_constant(const ScalarValue& value, DType dtype) {
  return scalar_array(value, {dtype, false});
}

Array scalar_constant(const ScalarValue& value, WeakDType dtype) {
  return scalar_array(value, dtype);
}

Operand promoted_scalar(const Operand& x, WeakDType dtype) {
  return x.is_scalar() && !current_trace() ? Operand(to_array(x, dtype)) : x;
}

Array to_array(const Operand& x) {
  return x.is_scalar() ? scalar_for(x.scalar(), x.dtype()) : x.array();
}

Array to_array(const Operand& x, WeakDType dtype) {
  if (x.is_scalar()) return scalar_for(x.scalar(), dtype);
  return with_weak(convert_to(x.array(), dtype.dtype), dtype.weak);
}

Array to_float_array(const Operand& x) {
  const WeakDType t = x.dtype();
  return is_float(t.dtype) ? to_array(x) : to_array(x, {DType::kF32, t.weak});
}

WeakDType float_dtype(const Operand& a, const Operand& b) {
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  return is_float(dtype.dtype) ? dtype : WeakDType{DType::kF32, dtype.weak};
}

double largest_float(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF16:
      return 65504;
    case DType::kBF16:
      return 0x1.fep127;
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}

Array convert_to(const Array& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return record1(OpKind::kConvert, DTypeParams{dtype}, {x});
}

Array at_least_f32(const Array& x) {
  return x.dtype() == DType::kF64 ? x : convert_to(x, DType::kF32);
}

Array with_weak(const Array& x, bool weak) {
  if (x.type().weak == weak) return x;
  auto impl = std::make_shared<ArrayImpl>(*x.impl());
  impl->type.weak = weak;
  return Array(std::move(impl));
}

Shape broadcast_shapes(std::string_view name, const ArrayType& a, const ArrayType& b) {
  const int rank = std::max(a.shape.rank(), b.shape.rank());
  Dims dims(static_cast<size_t>(rank), 1);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - rank + a.shape.rank(), ib = i - rank + b.shape.rank();
    const int64_t da = ia < 0 ? 1 : a.shape[ia], db = ib < 0 ? 1 : b.shape[ib];
    if (da != db && da != 1 && db != 1)
      trace_error_here("[{}] {} and {} do not broadcast: axis {} has extents {} and {}", name,
                       to_string(a), to_string(b), i - rank, da, db);
    dims[static_cast<size_t>(i)] = da == 1 ? db : da;
  }
  return Shape(std::move(dims));
}

Array broadcast_array(const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Dims axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(shape.rank() - x.rank() + i);
  return record1(OpKind::kBroadcast, BroadcastParams{shape, std::move(axes)}, {x});
}

Array zeros_of(const ArrayType& type) {
  const Array zeros = broadcast_array(scalar_constant(0, type.dtype), type.shape);
  return type.kind == MemoryKind::kDevice ? zeros : device_put(zeros, type.kind);
}

Array to_indices(std::string_view name, std::string_view what, const Operand& x) {
  const DType dtype = x.dtype().dtype;
  if (!is_integer(dtype))
    trace_error_here("[{}] {} must be integers, got {}", name, what,
                     to_string(ArrayType{dtype, x.shape()}));
  const Array indices = with_weak(to_array(x), false);
  if (dtype_bytes(dtype) >= 4) return indices;
  return convert_to(indices, is_unsigned_int(dtype) ? DType::kU32 : DType::kI32);
}

int64_t normalize_axis(std::string_view name, int64_t axis, int rank, const ArrayType& type) {
  if (axis < -rank || axis >= rank)
    trace_error_here("[{}] axis {} is out of range for {}", name, axis, to_string(type));
  return axis < 0 ? axis + rank : axis;
}

Array run_as_one(const char* what, const std::function<Array()>& body) {
  return traced_or_run(what, [&] { return std::vector<Array>{body()}; }).front();
}

Array binary_op(OpKind op, const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const ArrayType ta{.dtype = a.dtype().dtype, .shape = a.shape()};
  const ArrayType tb{.dtype = b.dtype().dtype, .shape = b.shape()};
  const Shape shape = broadcast_shapes(op_name(op), ta, tb);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const Operand x = promoted_scalar(a, dtype), y = promoted_scalar(b, dtype);
  const Array result = run_as_one("op", [&] {
    return record1(
        op, NoParams{},
        {broadcast_array(to_array(x, dtype), shape), broadcast_array(to_array(y, dtype), shape)});
  });
  return with_weak(result, !is_compare(op) && dtype.weak);
}

Array unary_op(OpKind op, const Operand& x) {
  const CallSiteScope site(x.at);
  return record1(op, NoParams{}, {to_array(x)});
}

}  // namespace stow
