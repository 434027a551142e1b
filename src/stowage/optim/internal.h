// Shared by transformations: moments, counts, bias correction.
// Not public.
#pragma once

#include <optional>
#include <string>

#include "stowage/api/math.h"
#include "stowage/optim/transformation.h"

namespace stow::optim {

/// A transformation without state.
GradientTransformation stateless(std::string name,
                                 std::function<void(Leaves& updates, const Leaves& params)> update);
/// The same leaf by leaf: f(update, parameter).
GradientTransformation leafwise(std::string name,
                                std::function<Array(const Array& update, const Array& param)> f);

/// An array like a parameter, filled with `value`; abstract where the parameter is.
Array moment_like(const Array& param, std::optional<DType> dtype = {}, double value = 0);
/// The same of another shape.
Array moment_of(const Array& param, const Shape& shape, double value = 0);
/// An i32 scalar of 0.
Array zero_count();
/// count + 1, and the largest i32 at last.
Array increment(const Array& count);

/// decay * moment + (1 - decay) * value.
Array update_moment(const Array& value, const Array& moment, double decay);
/// moment / (1 - decay^count), the divisor in f32, or in f64 for a moment of f64.
Array bias_correction(const Array& moment, double decay, const Array& count);
/// The moment as the next step will find it, before it has seen that step's gradient.
/// Source: Dozat 2016, algorithm 2.
Array look_ahead(const Array& moment, const Array& update, double decay, const Array& count);

}  // namespace stow::optim
