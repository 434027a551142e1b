// Strict building of graphs: one function an op, types checked, nothing promoted or broadcast.
// Not the user's API; api/ adds NumPy's rules, scalars and eager evaluation on top.
#pragma once

#include <initializer_list>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow {

// Nodes without operands. Constants have rank 0; `full` broadcasts one.
Val constant(GraphBuilder& b, DType dtype, double value);
Val constant_int(GraphBuilder& b, DType dtype, int64_t value);
Val full(GraphBuilder& b, const ArrayType& type, double value);
Val zeros_like(const Val& x);
Val full_like(const Val& x, double value);
Val iota(GraphBuilder& b, const ArrayType& type, int64_t axis);
/// Returns the random bits of `key` from number `first` (an i64 scalar) on.
Val random_bits(const Val& key, const Val& first, const Shape& shape);

// Elementwise: operands of equal shapes and dtypes (select: a bool, then two of equal dtype).
Val unary(OpKind op, const Val& x);
Val binary(OpKind op, const Val& a, const Val& b);
inline Val abs(const Val& x) { return unary(OpKind::kAbs, x); }
inline Val sign(const Val& x) { return unary(OpKind::kSign, x); }
inline Val floor(const Val& x) { return unary(OpKind::kFloor, x); }
inline Val exp(const Val& x) { return unary(OpKind::kExp, x); }
inline Val log(const Val& x) { return unary(OpKind::kLog, x); }
inline Val tanh(const Val& x) { return unary(OpKind::kTanh, x); }
inline Val sin(const Val& x) { return unary(OpKind::kSin, x); }
inline Val cos(const Val& x) { return unary(OpKind::kCos, x); }
inline Val sqrt(const Val& x) { return unary(OpKind::kSqrt, x); }
inline Val rsqrt(const Val& x) { return unary(OpKind::kRsqrt, x); }
inline Val logistic(const Val& x) { return unary(OpKind::kLogistic, x); }
inline Val pow(const Val& a, const Val& b) { return binary(OpKind::kPow, a, b); }
inline Val max(const Val& a, const Val& b) { return binary(OpKind::kMax, a, b); }
inline Val min(const Val& a, const Val& b) { return binary(OpKind::kMin, a, b); }
inline Val logical_and(const Val& a, const Val& b) { return binary(OpKind::kAnd, a, b); }
// Comparisons give bool.
inline Val eq(const Val& a, const Val& b) { return binary(OpKind::kEq, a, b); }
inline Val ne(const Val& a, const Val& b) { return binary(OpKind::kNe, a, b); }
inline Val lt(const Val& a, const Val& b) { return binary(OpKind::kLt, a, b); }
inline Val le(const Val& a, const Val& b) { return binary(OpKind::kLe, a, b); }
inline Val gt(const Val& a, const Val& b) { return binary(OpKind::kGt, a, b); }
inline Val ge(const Val& a, const Val& b) { return binary(OpKind::kGe, a, b); }
Val operator+(const Val& a, const Val& b);
Val operator-(const Val& a, const Val& b);
Val operator*(const Val& a, const Val& b);
Val operator/(const Val& a, const Val& b);
Val operator-(const Val& a);
// With a C++ scalar, which becomes a broadcast constant of the array's dtype.
Val operator+(const Val& a, double b);
Val operator-(const Val& a, double b);
Val operator*(const Val& a, double b);
Val operator/(const Val& a, double b);
Val operator-(double a, const Val& b);
Val select(const Val& condition, const Val& on_true, const Val& on_false);
Val convert(const Val& x, DType dtype);  ///< x itself if it has that dtype.
Val bitcast(const Val& x, DType dtype);

// Shape. A function returns its operand if the shape and order would stay.
Val broadcast(const Val& x, const Shape& shape, const Dims& axes);
Val broadcast_scalar(const Val& x, const Shape& shape);
Val reshape(const Val& x, const Shape& shape);
Val transpose(const Val& x, const Dims& axes);
Val reverse(const Val& x, const Dims& axes);
/// An empty `stride` means 1 for every axis.
Val slice(const Val& x, const Dims& start, const Dims& limit, const Dims& stride);
/// Returns elements [start, limit) of one axis.
Val slice_axis(const Val& x, int64_t axis, int64_t start, int64_t limit);
Val pad(const Val& x, const Val& value, const Dims& low, const Dims& high, const Dims& interior);
Val concatenate(std::span<const Val> parts, int64_t axis);
Val dynamic_slice(const Val& x, std::span<const Val> starts, const Dims& sizes);
Val dynamic_update_slice(const Val& x, const Val& update, std::span<const Val> starts);
Val gather(const Val& x, const Val& indices, const GatherParams& params);
Val scatter_add(const Val& x, const Val& indices, const Val& updates, const GatherParams& params);

// Reductions drop the axes.
Val reduce(OpKind op, const Val& x, const Dims& axes);
Val reduce_sum(const Val& x, const Dims& axes);
Val cumsum(const Val& x, int64_t axis, bool reverse);
/// The first operand is the key; the others are permuted in the same way.
std::vector<Val> sort(std::span<const Val> operands, int64_t axis, bool descending);
/// Inserts the reduced `axes` of a value of shape `full` again, with extent 1.
Val keep_axes(const Val& reduced, const Shape& full, const Dims& axes);
/// Broadcasts a reduced value back to shape `full`, over the reduced `axes`.
Val unreduce(const Val& reduced, const Shape& full, const Dims& axes);

Val dot_general(const Val& a, const Val& b, const DotParams& params);
/// [..., m, k] x [k, n], or batched [B, m, k] x [B, k, n]; the result has the operands' dtype.
Val matmul(const Val& a, const Val& b);
Val name(const Val& x, std::string name);
/// Returns x itself if it is in that memory.
Val device_put(const Val& x, MemoryKind kind);
/// Returns a + b, computed on the device and moved to the memory of a. a and b may be in any
/// memory.
Val add_anywhere(const Val& a, const Val& b);
/// As broadcast(), for x in any memory: computed on the device and moved to the memory of x.
Val broadcast_anywhere(const Val& x, const Shape& shape, const Dims& axes);
/// As full(), for any memory kind.
Val full_anywhere(GraphBuilder& b, const ArrayType& type, double value);

}  // namespace stow
