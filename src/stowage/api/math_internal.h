// Promotion and broadcasting shared by the functions over arrays.
// Not public, and no functions of the user's.
#pragma once

#include <string_view>

#include "stowage/api/trace.h"
#include "stowage/base/inside.h"

namespace stow {

/// A constant of rank 0: part of the program, whatever the trace does with literals.
Array scalar_constant(const ScalarValue& value, DType dtype);
Array scalar_constant(const ScalarValue& value, WeakDType dtype);  // the same, weak or not
/// The array, or a scalar of the operand's own (weak) dtype.
Array to_array(const Operand& x);
/// The same, converted to this dtype, and weak or not as said.
Array to_array(const Operand& x, WeakDType dtype);
/// Outside a trace, a C++ scalar as an array of this dtype: an argument of the program that will
/// be run, so that other scalars run the same program. Anything else is left as it is.
Operand promoted_scalar(const Operand& x, WeakDType dtype);
/// Outside a trace, what `body` records as one program.
Array run_as_one(const char* what, const std::function<Array()>& body);
/// An array of a float dtype: integers to weak f32 where they are scalars, else f32.
Array to_float_array(const Operand& x);
/// The dtype of a function of both to floats: of integers f32.
WeakDType float_dtype(const Operand& a, const Operand& b);
/// The largest finite number of a float dtype.
double largest_float(DType dtype);
/// The value that changes no maximum (largest), or no minimum, of that dtype.
ScalarValue neutral_value(bool largest, DType dtype);
Array convert_to(const Array& x, DType dtype);
/// f64 as it is, anything else as f32.
Array at_least_f32(const Array& x);
/// The same value with that weakness.
Array with_weak(const Array& x, bool weak);

/// NumPy's rule. Errors: TraceError "[name] f32[3] and f32[4] do not broadcast".
Shape broadcast_shapes(std::string_view name, const ArrayType& a, const ArrayType& b);
/// Errors: TraceError for a `where` that is no bool or does not broadcast to x.
void check_where(std::string_view name, const Array& where, const Array& x);
/// Broadcast by NumPy's rule to a shape that it is known to broadcast to; x itself if equal.
Array broadcast_array(const Array& x, const Shape& shape);
/// Returns zeros of that type, in its memory. They stand for a cotangent that nobody gave.
Array zeros_of(const ArrayType& type);
/// Integer indices wide enough to count an axis: at least 32 bits, never weak.
/// Errors: TraceError "[name] what must be integers, …".
Array to_indices(std::string_view name, std::string_view what, const Operand& x);
/// An axis in [0, rank), negative ones from the end.
int64_t check_axis(std::string_view name, int64_t axis, int rank, const ArrayType& type);

/// Promoted, broadcast and recorded; comparisons give bool.
Array binary_op(OpKind op, const Operand& a, const Operand& b);
Array unary_op(OpKind op, const Operand& x);

}  // namespace stow
