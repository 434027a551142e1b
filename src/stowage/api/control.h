// cond, switch_, while_loop, fori_loop: branches and loops that are decided when a program runs.
// Not C++'s if and for, which are decided when it is traced.
#pragma once

#include "stowage/api/scan.h"

namespace stow {

/// A type-erased cond or switch_, whose branches are functions over the leaves of the operands.
struct BranchRequest {
  const char* what;  ///< "cond" or "switch_".
  Operand index;     ///< The predicate, or the number of the branch.
  std::vector<LeafFunction> branches;
  TreeRef operands;
};
struct BranchResult {
  std::vector<Array> outputs;  ///< Leaves of the result.
  OwnedTree result;  ///< Result of branch 0; its leaves belong to that branch's trace.
};
BranchResult run_branches(const BranchRequest& request);

/// A type-erased loop. The body is a function over the leaves of the carry; in a fori_loop the
/// counter comes first.
struct LoopRequest {
  TreeRef init;
  LeafFunction body;
  SourceLocation at;
};
/// Run a while_loop and a fori_loop. They return the leaves of the final carry.
std::vector<Array> run_while(const LoopRequest& request, const LeafFunction& condition);
std::vector<Array> run_fori(const LoopRequest& request, const Operand& lower, const Operand& upper);

namespace control_detail {

// True if the results of two branches have the same C++ type; else compilation fails with a
// message.
template <typename First, typename Second>
constexpr bool check_alike() {
  static_assert(std::same_as<First, Second>,
                "stowage: the branches must return trees of one type");
  return std::same_as<First, Second> && !std::same_as<First, void>;
}
// True if a body's result has the carry's C++ type; else compilation fails with a message.
template <typename R, typename Carry>
constexpr bool check_carry() {
  static_assert(
      std::same_as<R, Carry> || std::same_as<R, void>,
      "stowage: the body must return the carry, of the type that it is given: one Array, or "
      "one tree; several values are a tree, such as std::pair or std::tuple");
  return std::same_as<R, Carry>;
}

template <typename R>
R unflatten(const BranchResult& result) {
  return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
}

}  // namespace control_detail

/// Returns true_fn(operands…) if `pred` holds, else false_fn(operands…). Only that branch is
/// evaluated, and in reverse mode only its gradient.
/// Shapes:  pred is a scalar: bool, or a number that is compared with zero.
/// Types:   both functions return trees of one structure with equal types; a leaf that is weak in
///          one branch takes the type that it has in the other.
/// Memory:  the peak is that of the larger branch, whichever runs. For each array type, a gradient
///          saves as many residuals as the branch that needs more of that type.
/// Captures: the functions may use arrays of enclosing traces. Both are traced once, and captured
///          C++ values have their values at that time.
/// Errors:  TraceError naming the leaf whose types differ.
/// Source:  JAX's lax.cond.
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

/// Returns branches[index](operands…), with the index clamped to [0, number of branches - 1].
/// Otherwise as cond. `branches` is a vector or array of functions of one type, such as
/// std::function, or a std::tuple of functions.
/// Shapes:  index is an integer scalar.
/// Errors:  as cond; TraceError if there is no branch or the index is not an integer scalar.
/// Source:  JAX's lax.switch; `switch` is a keyword of C++.
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
/// Types:   condition returns a bool scalar. body returns a carry of the structure and types of its
///          argument; a weak scalar in `init` takes the type that body returns.
/// Gradients: none in reverse mode, because the number of iterations is not known. fori_loop with
///          C++ integers as bounds, and scan, have gradients.
/// Errors:  TraceError naming the leaf that body returns with another type.
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
/// Types:   the counter is an integer scalar of the type to which both bounds promote (i32 for C++
///          integers that fit); the carry keeps its structure and types as in while_loop.
/// Gradients: if both bounds are C++ integers, the loop is a scan and has gradients; if one is an
///          array, it is a while_loop without gradients.
/// Errors:  TraceError if a bound is not an integer scalar; as while_loop.
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
