// Checks of functions that are said to be linear: which results depend on which arguments.
// Not differentiation itself; that is reverse.h.
#pragma once

#include <optional>
#include <vector>

#include "stowage/autodiff/reverse.h"
#include "stowage/base/inside.h"

namespace stow {

/// Returns by value true if it depends on the inputs marked; carries of loops and branches count
/// apart.
std::vector<bool> dependent_values(const Graph& graph, const std::vector<bool>& inputs);

/// A value of `split.forward` that the gradients are made of although it depends on the inputs
/// marked: the function is not linear in these. None: nothing of the kind is to be seen.
std::optional<ValueId> nonlinear_value(const SplitReverse& split, size_t n_outputs,
                                       const std::vector<bool>& dependent);

}  // namespace stow
