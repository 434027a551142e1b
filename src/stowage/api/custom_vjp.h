// custom_vjp: a function with a reverse-mode rule of the user's own.
// Not a change of its value; only of how it is differentiated.
#pragma once

#include "stowage/api/jit.h"

namespace stow {

/// A type-erased call. `arguments` is the tuple of them. The forward rule returns a pair whose
/// parts `parts` finds; `backward` takes the leaves of such a pair, the first part's being
/// cotangents, and returns a tree like the tuple of the arguments.
struct CustomVjpRequest {
  TreeRef arguments;
  LeafFunction function, forward;
  std::function<std::pair<TreeRef, TreeRef>(const OwnedTree&)> parts;
  std::function<OwnedTree(const OwnedTree& like, std::span<const Array>)> backward;
  SourceLocation at;
  const void* identity;  ///< Identity of the function, to detect a rule that calls it.
  const char* what = "custom_vjp";
  const char* forward_name = "the forward rule";  ///< For errors, as `what`.
};
struct CustomVjpResult {
  std::vector<Array> outputs;
  OwnedTree result;
};
CustomVjpResult run_custom_vjp(const CustomVjpRequest& request);

/// `function` with the same values, whose gradient is given by two rules:
///   forward(args…) -> pair(what function returns, residuals, any tree);
///   backward(residuals, cotangent) -> a tuple of cotangents like the arguments (or, of one
///   argument, its cotangent alone). An empty Array in it stands for zero; leaves of arguments that
///   are no floats have none, whatever is returned there. One that lies on the device is moved to
///   where its argument lies.
/// The cotangent is a tree like the result, with zeros for leaves that are no floats. All three are
/// traced at every call. What forward computes may be recomputed under a checkpoint policy, as any
/// other values; backward is differentiated like any function for second derivatives; under vmap
/// the rules are batched with the function. Plain C++ values and arrays may be captured; an array
/// that is differentiated must be an argument.
/// Outside a trace it is `function` itself.
/// Errors:  TraceError naming the leaf and both types where the forward rule's result is not the
///          function's, or a cotangent not of its argument's type; where a rule calls the function
///          that it is a rule of (call the plain one there); where a captured array is
///          differentiated.
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
      static_assert(std::is_invocable_v<Backward&, const Residuals&, const R&>,
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
