// Creates, renames, reorders, joins and splits arrays by names of axes; random numbers.
// Not arithmetic (named_array.h) and not indexing (index.h).
#pragma once

#include <map>

#include "stowage/api/shaping.h"
#include "stowage/nn/named/named_array.h"

namespace stow::named {

// Errors of all: TraceError naming the function, the axes and the source location.

NamedArray zeros(const AxisSpec& axes, DType dtype = DType::kF32, STOW_AT);  ///< All 0.
NamedArray ones(const AxisSpec& axes, DType dtype = DType::kF32, STOW_AT);   ///< All 1.
/// Without a dtype: f32, i32 or bool, by the type of the value.
NamedArray full(const AxisSpec& axes, ScalarValue value, std::optional<DType> dtype = {}, STOW_AT);
NamedArray zeros_like(const NamedArray& x, STOW_AT);  ///< All 0.
NamedArray ones_like(const NamedArray& x, STOW_AT);   ///< All 1.
/// start, start + step, … along one axis.
NamedArray arange(const Axis& axis, int64_t start = 0, int64_t step = 1, DType dtype = DType::kI32,
                  STOW_AT);
/// Adds `axis` as the last one: 1 at the index, 0 elsewhere.
NamedArray one_hot(const NamedArray& indices, const Axis& axis, DType dtype = DType::kF32, STOW_AT);

/// Returns x with its axes in this order. One "..." stands for those not named, in their order;
/// without it all must be named.
NamedArray rearrange(const NamedArray& x, const AxisSelection& order, STOW_AT);
/// Renames some axes: {{"Pos", "KeyPos"}}.
NamedArray rename(const NamedArray& x, const std::map<std::string, std::string>& names, STOW_AT);
/// Returns x with these axes, in this order, repeated along new ones.
/// Errors: also TraceError if x has an axis that is not among them.
NamedArray broadcast_to(const NamedArray& x, const AxisSpec& axes, STOW_AT);
/// Returns x repeated along those of `axes` that it lacks, which come first. Use it if an
/// elementwise function reports that neither operand has all axes of the other.
NamedArray broadcast_axis(const NamedArray& x, const AxisSpec& axes, STOW_AT);
/// Flattens axes into one, at the position of the first of them in x. The first of `axes` is the
/// major one. With no axes, adds an axis of size 1 in front.
NamedArray flatten_axes(const NamedArray& x, const AxisSelection& axes, std::string new_axis,
                        STOW_AT);
/// Splits one axis into several, the first being the major one. An axis of size 1 may become none.
/// Errors: also TraceError if the product of the sizes differs.
NamedArray unflatten_axis(const NamedArray& x, const AxisSelector& axis, const AxisSpec& new_axes,
                          STOW_AT);

/// Returns parts of an axis, one for each of `new_axes`, whose sizes add up to it.
std::vector<NamedArray> split(const NamedArray& x, const AxisSelector& axis,
                              const std::vector<Axis>& new_axes, STOW_AT);
/// Returns the slices along an axis, which is dropped.
std::vector<NamedArray> unbind(const NamedArray& x, const AxisSelector& axis, STOW_AT);
/// Joins arrays along an axis that all have; the result has the axes of the first, in its order.
NamedArray concatenate(const std::string& axis, const std::vector<NamedArray>& arrays, STOW_AT);
/// Joins arrays along a new first axis; the other axes are those of the first array, in its order.
NamedArray stack(const std::string& axis, const std::vector<NamedArray>& arrays, STOW_AT);
/// Shifts elements along an axis; elements beyond its end reappear at the beginning.
NamedArray roll(const NamedArray& x, int64_t shift, const AxisSelector& axis, STOW_AT);

namespace random {

// The numbers are those of stow::random for the shape of `axes`.
NamedArray normal(const Operand& key, const AxisSpec& axes,
                  DType dtype = DType::kF32);  ///< Standard.
NamedArray truncated_normal(const Operand& key, double low, double high, const AxisSpec& axes,
                            DType dtype = DType::kF32);  ///< Within (low, high).
NamedArray uniform(const Operand& key, const AxisSpec& axes, DType dtype = DType::kF32,
                   double low = 0, double high = 1);  ///< In [low, high).
NamedArray randint(const Operand& key, const AxisSpec& axes, int64_t low, int64_t high,
                   DType dtype = DType::kI32);  ///< Whole numbers in [low, high).
NamedArray bernoulli(const Operand& key, const AxisSpec& axes, const Operand& p);  ///< True with p.

}  // namespace random
}  // namespace stow::named
