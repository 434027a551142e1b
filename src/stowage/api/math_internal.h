// Promotion and broadcasting, shared by the functions over arrays.
// Not public.
#pragma once

#include <string_view>

#include "stowage/api/trace.h"
#include "stowage/base/inside.h"

namespace stow {

/// A constant of rank 0. It is always part of the program; a trace never captures it as an input.
Array scalar_constant(const ScalarValue& value, DType dtype);
/// scalar_constant with a dtype that may be weak.
Array scalar_constant(const ScalarValue& value, WeakDType dtype);
/// The operand's array, or its scalar as an array of the scalar's own, weak dtype.
Array to_array(const Operand& x);
/// to_array(x) converted to this dtype, weak or not.
Array to_array(const Operand& x, WeakDType dtype);
/// Outside a trace, a C++ scalar as an array of this dtype. The array becomes an argument of the
/// program that will run, so that other scalars run the same program. Any other operand is returned
/// unchanged.
Operand promoted_scalar(const Operand& x, WeakDType dtype);
/// Outside a trace, runs the operations that `body` records as one program; inside one, calls
/// `body`.
Array run_as_one(const char* what, const std::function<Array()>& body);
/// The operand as an array of a float dtype: scalar integers become weak f32, arrays of integers
/// f32.
Array to_float_array(const Operand& x);
/// The result dtype of a binary function whose results are floats; f32 if both operands are
/// integers.
WeakDType float_dtype(const Operand& a, const Operand& b);
/// The largest finite number of a float dtype.
double largest_float(DType dtype);
/// The neutral element of a maximum (`largest`) or a minimum in that dtype.
ScalarValue neutral_value(bool largest, DType dtype);
/// x converted to `dtype`; x itself if it has that dtype.
Array convert_to(const Array& x, DType dtype);
/// f64 unchanged, any other dtype converted to f32.
Array at_least_f32(const Array& x);
/// x with its dtype marked as weak or not weak.
Array with_weak(const Array& x, bool weak);

/// The shape to which both broadcast by NumPy's rule.
/// Errors: TraceError "[name] f32[3] and f32[4] do not broadcast".
Shape broadcast_shapes(std::string_view name, const ArrayType& a, const ArrayType& b);
/// Errors: TraceError for a `where` that is no bool or does not broadcast to x.
void check_where(std::string_view name, const Array& where, const Array& x);
/// x broadcast by NumPy's rule; x itself if it has that shape. The caller has checked that it
/// broadcasts.
Array broadcast_array(const Array& x, const Shape& shape);
/// Zeros of that type, in its memory kind. They represent a cotangent that the caller did not give.
Array zeros_of(const ArrayType& type);
/// Integer indices as an array of at least 32 bits, never weak.
/// Errors: TraceError "[name] what must be integers, …".
Array to_indices(std::string_view name, std::string_view what, const Operand& x);
/// Returns `axis` in [0, rank); a negative one counts from the end. `type`: for the message.
/// Errors: TraceError "[name] …" if the axis is out of range.
int64_t normalize_axis(std::string_view name, int64_t axis, int rank, const ArrayType& type);

/// Promotes and broadcasts the operands, and records the op. Comparisons return bool.
Array binary_op(OpKind op, const Operand& a, const Operand& b);
/// Records the op. Errors: TraceError of the op's type rule.
Array unary_op(OpKind op, const Operand& x);

}  // namespace stow
