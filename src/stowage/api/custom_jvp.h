// custom_jvp: a function with a user-defined forward-mode rule.
// Not a new op, and no rule of reverse mode (custom_vjp.h): the function's values stay the same.
#pragma once

#include "stowage/api/custom_vjp.h"

namespace stow {

/// A type-erased call. `arguments`: the tuple of arguments. `rule` takes the leaves of the primals
/// and the leaves of the tangents and returns a pair of trees like the result; `parts` returns the
/// trees of the two.
struct CustomJvpRequest {
  TreeRef arguments;
  LeafFunction function;
  std::function<OwnedTree(std::span<const Array> primals, std::span<const Array> tangents)> rule;
  std::function<std::pair<TreeRef, TreeRef>(const OwnedTree&)> parts;
  /// Returns a tuple like `arguments` with these leaves.
  std::function<OwnedTree(std::span<const Array>)> arguments_of;
  const void* identity;  ///< Identity of the function, to detect a rule that calls it.
  SourceLocation at;
};
/// Records the call in the current trace. Errors: as custom_jvp.
CustomVjpResult run_custom_jvp(const CustomJvpRequest& request);

/// Returns a function with the values of `function` whose derivative a rule defines:
///   rule(primals, tangents) -> pair(result of the function, its tangent)
/// `primals` and `tangents` are tuples like the arguments. The tangent of the result is a tree like
/// the result and must be linear in `tangents`. An empty Array in it stands for zero. The tangents
/// of arguments that are no floats are zeros; tangents of results that are no floats are ignored.
///   auto f = custom_jvp([](const Array& x) { return log1p(exp(x)); },
///                       [](const auto& primals, const auto& tangents) {
///                         const auto [x] = primals;
///                         const auto [dx] = tangents;
///                         return std::pair(log1p(exp(x)), logistic(x) * dx);
///                       });
/// Reverse mode transposes the rule, so its tangent must depend on `tangents` through ops that have
/// a gradient, which excludes a while_loop. In a differentiated call the value is that of the rule.
/// Second derivatives differentiate the rule. vmap batches the rule with the function. Every call
/// traces both. They may capture C++ values and arrays; an array that is differentiated must be an
/// argument. Outside a trace a call calls `function`.
/// Errors:  TraceError naming the leaf and both types if the rule's result does not have the type
///          of the function's, or a tangent not that of its result; TraceError naming the value at
///          fault if the rule is found not to be linear in the tangents, or its result depends on
///          them; TraceError if the rule calls the function that it belongs to (call the plain
///          function there), or if a captured array is differentiated.
/// Source:  JAX's jax.custom_jvp.
template <typename F, typename Rule>
auto custom_jvp(F function, Rule rule, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)),
          rule = std::make_shared<Rule>(std::move(rule)), at](const auto&... args) {
    using Arguments = std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...>;
    Arguments arguments(args...);
    check_function<F, AsTree<std::remove_cvref_t<decltype(args)>>...>();
    using R = std::remove_cvref_t<decltype(std::apply(*function, arguments))>;
    static_assert(std::is_invocable_v<Rule&, const Arguments&, const Arguments&>,
                  "stowage: the rule must take a tuple of primals and a tuple of tangents");
    using Pair = std::remove_cvref_t<decltype((*rule)(arguments, arguments))>;
    static_assert(std::same_as<Pair, std::pair<R, R>>,
                  "stowage: the rule must return a pair of what the function returns and the "
                  "tangent of that");
    static_assert(is_tree<R>(), "stowage: the function must return a tree of arrays");
    if (!is_tracing()) return R(std::apply(*function, arguments));
    const auto owned = [](auto tree) {
      auto kept = std::make_shared<decltype(tree)>(std::move(tree));
      return OwnedTree{kept, tree_ref(*kept)};
    };
    const auto arguments_of = [&](std::span<const Array> leaves) {
      return owned(tree_unflatten(arguments, leaves));
    };
    const auto call_rule = [&](std::span<const Array> primals, std::span<const Array> tangents) {
      return owned((*rule)(tree_unflatten(std::as_const(arguments), primals),
                           tree_unflatten(std::as_const(arguments), tangents)));
    };
    const auto parts = [](const OwnedTree& tree) {
      const Pair& pair = *static_cast<const Pair*>(tree.ref.tree);
      return std::pair(tree_ref(pair.first), tree_ref(pair.second));
    };
    const CustomVjpResult result = run_custom_jvp(
        {tree_ref(arguments), leaf_function(*function, std::as_const(arguments)), call_rule, parts,
         arguments_of, function.get(), at});
    return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
  };
}

/// Adds the leaves of `tangent` to `sums`, except empty ones and those of results that are no
/// floats.
/// Errors: TraceError if `tangent` does not have the structure of the result.
void add_tangents(const TreeRef& result, const TreeRef& tangent, std::vector<Array>& sums);

/// custom_jvp with a tuple of rules, one for each argument. rule(tangent, result, args…) returns
/// the contribution of that argument's tangent to the result's tangent: a tree like the result, in
/// which an empty Array stands for zero. None{} instead of a rule stands for no contribution.
///   auto f = defjvps([](const Array& x, const Array& y) { return sin(x) * y; },
///                    std::tuple([](const Array& dx, const Array&, const Array& x,
///                                  const Array& y) { return cos(x) * y * dx; },
///                               None{}));
/// Errors:  as custom_jvp.
/// Source:  JAX's jax.custom_jvp.defjvps. The rules get the result of the plain `function`; if a
///          rule uses it, second derivatives differentiate `function` itself.
template <typename F, typename... Rules>
auto defjvps(F function, std::tuple<Rules...> rules, STOW_AT) {
  auto shared = std::make_shared<std::pair<F, std::tuple<Rules...>>>(std::move(function),
                                                                     std::move(rules));
  const auto rule = [shared](const auto& primals, const auto& tangents) {
    static_assert(std::tuple_size_v<std::remove_cvref_t<decltype(primals)>> == sizeof...(Rules),
                  "stowage: defjvps takes a rule, or None{}, an argument");
    const auto result = std::apply(shared->first, primals);
    std::vector<Array> sums(leaves_of(tree_ref(result)).size());
    const auto add = [&](auto& each, const auto& tangent) {
      if constexpr (!std::same_as<std::remove_cvref_t<decltype(each)>, None>) {
        const auto part = std::apply(
            [&](const auto&... args) { return each(tangent, result, args...); }, primals);
        add_tangents(tree_ref(result), tree_ref(part), sums);
      }
    };
    [&]<size_t... i>(std::index_sequence<i...>) {
      (add(std::get<i>(shared->second), std::get<i>(tangents)), ...);
    }(std::index_sequence_for<Rules...>());
    return std::pair(result, tree_unflatten(result, sums));
  };
  return custom_jvp([shared](const auto&... args) { return shared->first(args...); }, rule, at);
}

}  // namespace stow
