// Checks of axes shared by the functions that take them.
// Not public; the functions are in shaping.h.
#pragma once

#include <string_view>

#include "stowage/api/shaping.h"

namespace stow {

/// The axes meant, in [0, rank) and in the order given; all of them, or none, where not given.
/// Errors: TraceError for one out of range or given twice.
Dims check_axes(std::string_view name, const Axes& axes, const ArrayType& type, bool all);

}  // namespace stow
