// Shared by the distributions.
// Not public; see random.h.
#pragma once

#include "stowage/api/random.h"

namespace stow::random {

/// The key. Errors: TraceError if it is not u32[2].
Array check_key(const Operand& key);
/// The number of a float dtype next to -1, towards 0.
double after_minus_one(DType dtype);
/// The smallest normal number of a float dtype.
double smallest_normal(DType dtype);

/// One key an element: the two words of each.
struct Keys {
  Array hi, lo;
};
/// split(key, n), one key an element.
Keys split_keys(const Array& key, int64_t n);
/// The i-th of the keys that each key would be split into.
Keys child(const Keys& keys, uint32_t i);
/// The keys of `a` where `condition` holds, else those of `b`.
Keys where_keys(const Array& condition, const Keys& a, const Keys& b);
/// One draw of uniform and normal for each key, as for shape (). Types: f32 or f64.
Array uniform_each(const Keys& keys, DType dtype);
Array normal_each(const Keys& keys, DType dtype);

/// The shape asked for, else that of the parameters together.
Shape shape_of(const char* name, const std::optional<Shape>& shape,
               std::initializer_list<const Operand*> parameters);
/// A parameter as an array of that shape and float dtype. Errors: TraceError if it does not
/// broadcast.
Array spread(const char* name, const Operand& x, const Shape& shape, DType dtype);

}  // namespace stow::random
