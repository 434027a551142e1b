// Strict building of graphs: one function an op, types checked, nothing promoted or broadcast.
// Not the user's API; api/ adds NumPy's rules, scalars and eager evaluation on top.
#pragma once

#include <initializer_list>

#include "stowage/ops/op_def.h"

namespace stow {

// Leaves. A scalar constant is of rank 0; `full` broadcasts one.
Val constant(GraphBuilder& b, DType dtype, double value);
Val constant_int(GraphBuilder& b, DType dtype, int64_t value);
Val full(GraphBuilder& b, const ArrayType& type, double value);
Val zeros_like(const Val& x);
Val full_like(const Val& x, double value);
Val iota(GraphBuilder& b, const ArrayType& type, int64_t axis);
Val random_bits(const Val& key, const Shape& shape);

// Elementwise: equal shapes and dtypes (select: bool, then two alike).
Val unary(OpKind op, const Val& x);
Val binary(OpKind op, const Val& a, const Val& b);
Val operator+(const Val& a, const Val& b);
Val operator-(const Val& a, const Val& b);
Val operator*(const Val& a, const Val& b);
Val operator/(const Val& a, const Val& b);
Val operator-(const Val& a);
// With a C++ scalar: a constant of the array's dtype, broadcast.
Val operator+(const Val& a, double b);
Val operator*(const Val& a, double b);
Val operator-(double a, const Val& b);
Val select(const Val& condition, const Val& on_true, const Val& on_false);
Val convert(const Val& x, DType dtype);  ///< x itself when it has that dtype.
Val bitcast(const Val& x, DType dtype);

// Shape. Functions that would change nothing return their operand.
Val broadcast(const Val& x, const Shape& shape, const Dims& axes);
Val broadcast_scalar(const Val& x, const Shape& shape);
Val reshape(const Val& x, const Shape& shape);
Val transpose(const Val& x, const Dims& axes);
Val reverse(const Val& x, const Dims& axes);
Val slice(const Val& x, const Dims& start, const Dims& limit, const Dims& stride);
/// Half-open [start, limit) of one axis.
Val slice_axis(const Val& x, int64_t axis, int64_t start, int64_t limit);
Val pad(const Val& x, const Val& value, const Dims& low, const Dims& high, const Dims& interior);
Val concatenate(std::span<const Val> parts, int64_t axis);
Val dynamic_slice(const Val& x, std::span<const Val> starts, const Dims& sizes);
Val dynamic_update_slice(const Val& x, const Val& update, std::span<const Val> starts);
Val gather(const Val& x, const Val& indices, const GatherParams& params);
Val scatter_add(const Val& x, const Val& indices, const Val& updates, const GatherParams& params);

// Reductions drop the axes; `keep_axes` gives the extents back as 1.
Val reduce(OpKind op, const Val& x, const Dims& axes);
Val reduce_sum(const Val& x, const Dims& axes);
Val cumsum(const Val& x, int64_t axis, bool reverse);
/// Broadcasts a reduced value back over the axes it lost.
Val unreduce(const Val& reduced, const Shape& full, const Dims& axes);

Val dot_general(const Val& a, const Val& b, const DotParams& params);
/// [..., m, k] x [k, n] and batched [B, m, k] x [B, k, n].
Val name(const Val& x, std::string name);

}  // namespace stow
