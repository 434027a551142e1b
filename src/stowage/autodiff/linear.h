// Dependence analysis that detects nonlinearity in functions that are declared to be linear.
// Not differentiation itself; that is reverse.h.
#pragma once

#include <optional>
#include <vector>

#include "stowage/autodiff/reverse.h"
#include "stowage/base/inside.h"

namespace stow {

/// Returns, for each value, whether it depends on an input that `inputs` marks. Scans, conds,
/// checkpoints and custom_vjp nodes are analysed result by result; any other node's results depend
/// on all of its operands.
std::vector<bool> dependent_values(const Graph& graph, const std::vector<bool>& inputs);

/// Returns a value of `split.forward` that the backward graph reads and that depends on the marked
/// inputs; it shows that the function is not linear in them. None if there is no such value.
/// `n_outputs`: number of outputs of the function. `dependent`: dependent_values of
/// `split.forward`.
std::optional<ValueId> find_nonlinear_value(const SplitReverse& split, size_t n_outputs,
                                            const std::vector<bool>& dependent);

}  // namespace stow
