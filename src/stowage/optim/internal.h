// Helpers of transformations: moments, counts, bias correction.
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
/// A transformation without state that replaces each update by f(update, parameter).
GradientTransformation leafwise(std::string name,
                                std::function<Array(const Array& update, const Array& param)> f);

/// Returns an array of the parameter's shape, filled with `value`; abstract if the parameter is.
/// `dtype`: the parameter's if none.
Array moment_like(const Array& param, std::optional<DType> dtype = {}, double value = 0);
/// moment_like with another shape and the parameter's dtype.
Array moment_of(const Array& param, const Shape& shape, double value = 0);
/// Returns the i32 scalar 0.
Array zero_count();
/// Returns count + 1; the largest i32 stays.
Array increment(const Array& count);

/// Returns decay * moment + (1 - decay) * value.
Array update_moment(const Array& value, const Array& moment, double decay);
/// Returns moment / (1 - decay^count). The divisor is f32, or f64 if the moment is f64.
Array bias_correction(const Array& moment, double decay, const Array& count);
/// Returns Nesterov's bias-corrected moment: decay * bias_correction(moment, count + 1)
/// + (1 - decay) * bias_correction(update, count).
/// Source: Dozat 2016, algorithm 2.
Array look_ahead(const Array& moment, const Array& update, double decay, const Array& count);

}  // namespace stow::optim
