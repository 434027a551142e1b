// cond, switch_, while_loop, fori_loop: branches and loops that are decided while a program runs.
// Not C++'s own if and for, which decide while it is traced.
#pragma once

#include "stowage/api/scan.h"

namespace stow {

/// A type-erased choice between functions over the leaves of the operands.
struct BranchRequest {
  const char* what;  ///< "cond" or "switch_".
  Operand index;     ///< The predicate, or the number of the branch.
  std::vector<LeafFunction> branches;
  TreeRef operands;
};
struct BranchResult {
  std::vector<Array> outputs;
  OwnedTree result;  ///< Result of branch 0; the leaves are of its trace.
};
BranchResult run_branches(const BranchRequest& request);

/// A type-erased loop: over the leaves of the carry, or over the counter and them.
struct LoopRequest {
  TreeRef init;
  LeafFunction body;
  SourceLocation at;
};
std::vector<Array> run_while(const LoopRequest& request, const LeafFunction& condition);
std::vector<Array> run_fori(const LoopRequest& request, const Operand& lower, const Operand& upper);

namespace control_detail {

// True if the results of two branches have one type; else stops the compilation with a sentence.
template <typename First, typename Second>
constexpr bool check_alike() {
  static_assert(std::same_as<First, Second>,
                "stowage: the branches must return trees of one type");
  return std::same_as<First, Second> && !std::same_as<First, void>;
}
// True if a body's result has the carry's type; else stops the compilation with a sentence.
template <typename R, typename Carry>
constexpr bool check_carry() {
  static_assert(std::same_as<R, Carry> || std::same_as<R, void>,
                "stowage: the body must return the carry, of the type that it is given: one Array, or "
                "one tree; several values are a tree, such as std::pair or std::tuple");
  return std::same_as<R, Carry>;
}

template <typename R>
R unflatten(const BranchResult& result) {
  return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
}

}  // namespace control_detail

/// true_fn(operands…) where `pred` holds, else false_fn(operands…); only that one is evaluated, and
/// in reverse mode only its gradient.
/// Shapes:  pred a scalar: bool, or a number that is compared with zero.
/// Types:   both functions return trees of one structure with equal types; a leaf that is weak in
///          one takes the type that it has in the other.
/// Memory:  the peak is that of the larger branch, whichever runs; gradients save what the branch
///          that needs more of a type needs.
/// Errors:  TraceError naming the leaf whose types differ.
/// Source:  JAX's lax.cond. Arrays of the surroundings may be used inside; what else C++ captures
///          is fixed when the functions are traced, both of them, once.
template <typename True, typename False, typename... Args>
auto cond(const Operand& pred, True true_fn, False false_fn, const Args&... operands) {
  const std::tuple<AsTree<Args>...> arguments(operands...);
  using R = BodyResult<True, AsTree<Args>...>;
  if constexpr (control_detail::check_alike<R, BodyResult<False, AsTree<Args>...>>())
    return control_detail::unflatten<R>(
        run_branches({"cond",
                      pred,
                      {leaf_function(false_fn, arguments), leaf_function(true_fn, arguments)},
                      tree_ref(arguments)}));
}

/// branches[index](operands…), the index clamped to the branches there are; as cond otherwise.
/// (`switch` is a word of C++.) `branches` is a vector or array of functions of one type, such as
/// std::function, or a std::tuple of functions.
/// Shapes:  index an integer scalar.
/// Errors:  as cond; TraceError where there is no branch or the index is no integer scalar.
/// Source:  JAX's lax.switch.
template <typename Branches, typename... Args>
auto switch_(const Operand& index, Branches branches, const Args&... operands) {
  const std::tuple<AsTree<Args>...> arguments(operands...);
  std::vector<LeafFunction> functions;
  if constexpr (tree_detail::Kind<Branches>::is_tuple) {
    using R = BodyResult<std::tuple_element_t<0, Branches>, AsTree<Args>...>;
    std::apply(
        [&](auto&... branch) {
          (control_detail::check_alike<
               R, BodyResult<std::remove_reference_t<decltype(branch)>,
                                           AsTree<Args>...>>(),
           ...);
          (functions.push_back(leaf_function(branch, arguments)), ...);
        },
        branches);
    return control_detail::unflatten<R>(
        run_branches({"switch_", index, std::move(functions), tree_ref(arguments)}));
  } else {
    using R = BodyResult<typename Branches::value_type, AsTree<Args>...>;
    control_detail::check_alike<R, R>();
    for (auto& branch : branches) functions.push_back(leaf_function(branch, arguments));
    return control_detail::unflatten<R>(
        run_branches({"switch_", index, std::move(functions), tree_ref(arguments)}));
  }
}

/// carry = init; while (condition(carry)) carry = body(carry); returns the carry.
/// Types:   condition returns a bool scalar; body a carry of the structure and types that it was
///          given (a weak scalar to begin with takes the body's type).
/// Errors:  TraceError naming the leaf that body returns with another type. There is no reverse
///          mode, for how often it runs is not known: fori_loop with C++ integers and scan have
///          one.
/// Source:  JAX's lax.while_loop.
template <typename Condition, typename Body, typename Init>
auto while_loop(Condition condition, Body body, const Init& init, STOW_AT) {
  using Carry = AsTree<Init>;
  static_assert(is_tree<Carry>(), "stowage: the carry must be a tree of arrays");
  constexpr bool is_condition = std::is_invocable_r_v<Array, Condition&, Carry&>;
  static_assert(is_condition,
                "stowage: the condition must take the carry and return one Array, a bool scalar");
  if constexpr (control_detail::check_carry<BodyResult<Body, Carry>, Carry>() && is_condition) {
    const std::tuple<Carry> arguments(init);
    const auto truth = [&](Carry& carry) { return Array(as_tree(condition(carry))); };
    const Carry& carry = std::get<0>(arguments);
    return tree_unflatten(carry, run_while({tree_ref(carry), leaf_function(body, arguments), at},
                                           leaf_function(truth, arguments)));
  }
}

/// carry = init; for (i = lower; i < upper; ++i) carry = body(i, carry); returns the carry.
/// Types:   the counter is an integer scalar of the type that both bounds promote to (i32 for C++
///          integers that fit); the carry keeps its structure and types as in while_loop.
/// Bounds:  where both are C++ integers it is a scan, and has a reverse mode; where one is an array
///          it is a while_loop, and has none.
/// Errors:  TraceError where a bound is no integer scalar; as while_loop.
/// Source:  JAX's lax.fori_loop.
template <typename Body, typename Init>
auto fori_loop(const Operand& lower, const Operand& upper, Body body, const Init& init) {
  using Carry = AsTree<Init>;
  static_assert(is_tree<Carry>(), "stowage: the carry must be a tree of arrays");
  if constexpr (control_detail::check_carry<BodyResult<Body, Array, Carry>, Carry>()) {
    const std::tuple<Array, Carry> arguments(Array(0), init);
    const Carry& carry = std::get<1>(arguments);
    return tree_unflatten(
        carry, run_fori({tree_ref(carry), leaf_function(body, arguments), lower.at}, lower, upper));
  }
}

}  // namespace stow
