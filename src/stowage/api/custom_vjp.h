// custom_vjp: a function with a reverse-mode rule of the user's own.
// Not a new op, and not a forward-mode rule (custom_jvp.h). jvp uses the reverse-mode rule too:
// forward mode is composed from reverse mode (jvp.h).
#pragma once

#include "stowage/api/jit.h"

namespace stow {

/// A type-erased call. `arguments`: the tuple of arguments. `forward` returns a pair (outputs,
/// residuals); `parts` returns the trees of the two. `backward` takes the leaves of a pair
/// (cotangents, residuals), whose structure is `like`, and returns a tree like `arguments`.
struct CustomVjpRequest {
  TreeRef arguments;
  LeafFunction function, forward;
  std::function<std::pair<TreeRef, TreeRef>(const OwnedTree&)> parts;
  std::function<OwnedTree(const OwnedTree& like, std::span<const Array>)> backward;
  SourceLocation at;
  const void* identity;  ///< Identity of the function, to detect a rule that calls it.
  const char* what = "custom_vjp";                ///< Name of the function in errors.
  const char* forward_name = "the forward rule";  ///< Name of `forward` in errors.
};
struct CustomVjpResult {
  std::vector<Array> outputs;  ///< Leaves of the function's result.
  OwnedTree result;            ///< The tree that they belong to.
};
/// Records the call in the current trace. Errors: as custom_vjp.
CustomVjpResult run_custom_vjp(const CustomVjpRequest& request);

/// Returns a function with the values of `function` whose gradient two rules define:
///   forward(args…) -> pair(what function returns, residuals, any tree);
///   backward(residuals, cotangent) -> a tuple of cotangents like the arguments (for one argument,
///   its cotangent alone also serves). An empty Array stands for a zero cotangent. Cotangents of
///   leaves that are no floats are ignored. A cotangent on the device is moved to its argument's
///   memory.
/// `cotangent` is a tree like the result, with zeros for leaves that are no floats. Every call
/// traces all three functions. A checkpoint policy may recompute values that forward computes, as
/// any other values. Second derivatives differentiate backward as any function. vmap batches the
/// rules with the function. The functions may capture C++ values and arrays; an array that is
/// differentiated must be an argument. Outside a trace a call calls `function`.
/// Errors:  TraceError naming the leaf and both types if the forward rule's first part is not the
///          function's result, or if a cotangent does not have its argument's type; TraceError if a
///          rule calls the function that it belongs to (call the plain function there), or if a
///          captured array is differentiated.
/// Source:  JAX's jax.custom_vjp.
template <typename F, typename Forward, typename Backward>
auto custom_vjp(F function, Forward forward, Backward backward, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)),
          forward = std::make_shared<Forward>(std::move(forward)),
          backward = std::make_shared<Backward>(std::move(backward)), at](const auto&... args) {
    using Arguments = std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...>;
    Arguments arguments(args...);
    check_function<F, AsTree<std::remove_cvref_t<decltype(args)>>...>();
    static_assert(std::is_invocable_v<Forward&, AsTree<std::remove_cvref_t<decltype(args)>>&...>,
                  "stowage: the forward rule takes the arguments of the function");
    using R = std::remove_cvref_t<decltype(std::apply(*function, arguments))>;
    using Pair = std::remove_cvref_t<decltype(std::apply(*forward, arguments))>;
    static_assert(tree_detail::is_pair<Pair> && is_tree<Pair>(),
                  "stowage: the forward rule must return std::pair(what the function returns, "
                  "residuals), both trees of arrays");
    using Residuals = typename Pair::second_type;
    static_assert(std::same_as<typename Pair::first_type, R>,
                  "stowage: the forward rule must return first what the function returns");
    if (!is_tracing()) return R(std::apply(*function, arguments));
    const auto call_backward = [&backward = *backward](const OwnedTree& like,
                                                       std::span<const Array> leaves) {
      const Pair pair = tree_unflatten(*static_cast<const Pair*>(like.ref.tree), leaves);
      static_assert(
          std::is_invocable_v<Backward&, const Residuals&, const R&>,
          "stowage: the backward rule takes (residuals, cotangent), the cotangent being of "
          "the type that the function returns");
      auto cotangents = backward(pair.second, pair.first);
      using C = decltype(cotangents);
      static_assert(is_tree<C>(), "stowage: the backward rule must return a tree of arrays");
      if constexpr (std::same_as<std::tuple<C>, Arguments>) {
        auto owned = std::make_shared<Arguments>(std::move(cotangents));
        return OwnedTree{owned, tree_ref(*owned)};
      } else {
        auto owned = std::make_shared<C>(std::move(cotangents));
        return OwnedTree{owned, tree_ref(*owned)};
      }
    };
    const auto parts = [](const OwnedTree& tree) {
      const Pair& pair = *static_cast<const Pair*>(tree.ref.tree);
      return std::pair(tree_ref(pair.first), tree_ref(pair.second));
    };
    const CustomVjpResult result = run_custom_vjp(
        {tree_ref(arguments), leaf_function(*function, std::as_const(arguments)),
         leaf_function(*forward, std::as_const(arguments)), parts, call_backward, at,
         function.get()});
    return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
  };
}

}  // namespace stow
