// custom_jvp: a function with a forward-mode rule of the user's own.
// Not a change of its value; only of how it is differentiated.
#pragma once

#include "stowage/api/custom_vjp.h"

namespace stow {

/// A type-erased call. `arguments` is the tuple of them. The rule takes the leaves of the primals
/// and those of the tangents and returns a pair of two trees like the result, which `parts` finds.
struct CustomJvpRequest {
  TreeRef arguments;
  LeafFunction function;
  std::function<OwnedTree(std::span<const Array> primals, std::span<const Array> tangents)> rule;
  std::function<std::pair<TreeRef, TreeRef>(const OwnedTree&)> parts;
  std::function<OwnedTree(std::span<const Array>)> arguments_of;  ///< A tuple with these leaves.
  const void* identity;
  SourceLocation at;
};
CustomVjpResult run_custom_jvp(const CustomJvpRequest& request);

/// `function` with the same values, whose derivative is given by a rule:
///   rule(primals, tangents) -> pair(what function returns, its tangent),
/// both arguments being tuples like the arguments, and the tangent a tree like the result. It must
/// be linear in the tangents; an empty Array in it stands for zero. Leaves that are no floats have
/// tangents of zeros, and none in the result, whatever is returned there.
///   auto f = custom_jvp([](const Array& x) { return log1p(exp(x)); },
///                       [](const auto& primals, const auto& tangents) {
///                         const auto [x] = primals;
///                         const auto [dx] = tangents;
///                         return std::pair(log1p(exp(x)), logistic(x) * dx);
///                       });
/// Reverse mode transposes the rule, so its tangent must depend on the tangents through ops that
/// have a gradient: not through a while_loop. Where it is differentiated the value is the rule's.
/// Second derivatives differentiate the rule; under vmap it is batched with the function. Both are
/// traced at every call. Plain C++ values and arrays may be captured; an array that is
/// differentiated must be an argument. Outside a trace it is `function` itself.
/// Errors:  TraceError naming the leaf and both types where the rule's result is not the function's,
///          or a tangent not of its result's type; where the rule is seen not to be linear in the
///          tangents, or its result depends on them, with the value at fault; where it calls the
///          function that it is the rule of (call the plain one there); where a captured array is
///          differentiated.
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

/// Adds the tangents of float results that are not empty to `sums`.
/// Errors: TraceError where the tree is not like the result.
void add_tangents(const TreeRef& result, const TreeRef& tangent, std::vector<Array>& sums);

/// custom_jvp by a tuple of one rule an argument: rule(tangent, result, args…) -> the part of the
/// result's tangent that this argument's gives, a tree like the result, empty Arrays being zeros; or
/// None{} for an argument that gives none.
///   auto f = defjvps([](const Array& x, const Array& y) { return sin(x) * y; },
///                    std::tuple([](const Array& dx, const Array&, const Array& x,
///                                  const Array& y) { return cos(x) * y * dx; },
///                               None{}));
/// Errors:  as custom_jvp.
/// Source:  JAX's jax.custom_jvp.defjvps; the result that the rules get is that of `function`, so that
///          its own derivative counts in second derivatives where a rule uses it.
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
