// saved_residuals: lists the values that a gradient keeps for its backward pass, where and why.
// Not a memory plan; jit(grad(f)).lower(…).compile().memory_analysis() reports one.
#pragma once

#include <cstdio>

#include "stowage/api/jit.h"
#include "stowage/session/saved_residuals.h"

namespace stow {

/// A type-erased saved_residuals. `at`: the place of the call, for errors.
std::vector<SavedResidual> saved_residuals_of(const TreeRef& arguments,
                                              const LeafFunction& function, SourceLocation at);

/// Returns the values that the gradient of `function` by all its float arguments keeps for its
/// backward pass, under the checkpoint policies in the function: arguments, captured arrays, then
/// computed values in order. Nothing is run; the arguments may be abstract. Values that elementwise
/// ops recompute from other kept values are not kept, even without a policy, and so not listed.
/// Errors: as compiling the gradient.
/// Source: JAX's jax.ad_checkpoint.saved_residuals, which lists more where it saves more.
template <typename F, typename... Args>
std::vector<SavedResidual> saved_residuals(F function, const Args&... args) {
  const std::tuple<AsTree<Args>...> arguments(args...);
  return saved_residuals_of(tree_ref(arguments), leaf_function(function, arguments), {});
}

/// The residuals as text, one line each.
std::string to_string(const std::vector<SavedResidual>& residuals);

/// Prints to_string(saved_residuals(function, args…)) to standard output.
template <typename F, typename... Args>
void print_saved_residuals(F function, const Args&... args) {
  std::fputs(to_string(saved_residuals(std::move(function), args...)).c_str(), stdout);
}

}  // namespace stow
