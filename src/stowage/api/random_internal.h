// Helpers shared by the sources of the random distributions.
// Not public; see random.h.
#pragma once

#include "stowage/api/random.h"

namespace stow::random {

/// Returns the key as an array. Errors: TraceError if it is not u32[2].
Array check_key(const Operand& key);
/// The number of a float dtype that follows -1 towards 0.
double after_minus_one(DType dtype);
/// The smallest normal number of a float dtype.
double smallest_normal(DType dtype);

/// An array of keys, as one array of u32 for each of a key's two words.
struct Keys {
  Array hi, lo;
};
/// The n keys of split(key, n).
Keys split_keys(const Array& key, int64_t n);
/// For each key k, the i-th key of split(k).
Keys child(const Keys& keys, uint32_t i);
/// For each element, the key of `a` if `condition` holds, else that of `b`.
Keys where_keys(const Array& condition, const Keys& a, const Keys& b);
/// For each key k, the scalar uniform(k). Types: f32 or f64.
Array uniform_each(const Keys& keys, DType dtype);
/// For each key k, the scalar normal(k). Types: f32 or f64.
Array normal_each(const Keys& keys, DType dtype);

/// `shape`, or without it the shape to which the parameters broadcast. `name`: the function, for
/// errors.
Shape shape_of(const char* name, const std::optional<Shape>& shape,
               std::initializer_list<const Operand*> parameters);
/// A parameter converted to `dtype`, a float, and broadcast to `shape`. Errors: TraceError if it
/// does not broadcast.
Array spread(const char* name, const Operand& x, const Shape& shape, DType dtype);

}  // namespace stow::random
