// saved_residuals: what the gradient of a function keeps of its forward part, where and why.
// Not a plan of memory; jit(grad(f)).lower(…).compile().memory_analysis() is.
#pragma once

#include <cstdio>

#include "stowage/api/jit.h"
#include "stowage/session/saved_residuals.h"

namespace stow {

std::vector<SavedResidual> saved_residuals_of(const TreeRef& arguments,
                                              const LeafFunction& function, SourceLocation at);

/// The values that the derivative of `function` by all its float arguments keeps for its backward
/// part, under the checkpoint policies within: arguments, captured arrays, then computed values in
/// order. Nothing is run; the arguments may be abstract. What elementwise work gives back from
/// other kept values is recomputed without being asked, and so not listed.
/// Errors: as compiling the gradient.
/// Source: JAX's jax.ad_checkpoint.saved_residuals, which lists more where it saves more.
template <typename F, typename... Args>
std::vector<SavedResidual> saved_residuals(F function, const Args&... args) {
  const std::tuple<AsTree<Args>...> arguments(args...);
  return saved_residuals_of(tree_ref(arguments), leaf_function(function, arguments), {});
}

/// The same as text, a line each.
std::string to_string(const std::vector<SavedResidual>& residuals);

/// Prints them to the standard output.
template <typename F, typename... Args>
void print_saved_residuals(F function, const Args&... args) {
  std::fputs(to_string(saved_residuals(std::move(function), args...)).c_str(), stdout);
}

}  // namespace stow
