// grad, value_and_grad, vjp: reverse-mode derivatives as functions of functions.
// Not the differentiation itself; that is autodiff/reverse.h.
#pragma once

#include <tuple>
#include <utility>

#include "stowage/api/jit.h"

namespace stow {

/// What a type-erased derivative is asked and answers.
struct GradRequest {
  const char* what;               ///< "grad", for errors.
  std::vector<int> argnums;       ///< Arguments to differentiate by; empty means all.
  std::vector<Array> cotangents;  ///< One an output leaf; empty for a scalar loss.
  SourceLocation at;
};
struct Derivative {
  std::vector<Array> outputs;    ///< Leaves of what the function returned.
  std::vector<Array> gradients;  ///< Of the leaves of the arguments asked for, in order.
  OwnedTree result;              ///< What it returned; the leaves are of the inner trace.
};
/// `arguments` is the tuple of them.
Derivative differentiate(const GradRequest& request, const TreeRef& arguments,
                         const LeafFunction& function);

namespace grad_detail {

template <int... I>
struct Argnums {
  static std::vector<int> list() { return {I...}; }
  template <size_t n>
  static constexpr void check() {
    static_assert(((I >= 0 && I < static_cast<int>(n)) && ...),
                  "stowage: an argnum names no argument of the function");
  }
  template <typename Tuple>
  static std::tuple<std::tuple_element_t<I, Tuple>...> pick(const Tuple& arguments) {
    return {std::get<I>(arguments)...};
  }
};
template <>
struct Argnums<> : Argnums<0> {};

// One argnum gives its tree, several a tuple of theirs.
template <typename... T>
auto single_or_tuple(std::tuple<T...> trees) {
  if constexpr (sizeof...(T) == 1)
    return std::get<0>(std::move(trees));
  else
    return trees;
}

template <typename N, typename F, typename Tuple>
auto run(const char* what, F& function, const Tuple& arguments, SourceLocation at) {
  []<typename... Args>(const std::tuple<Args...>*) { check_function<F, Args...>(); }(&arguments);
  N::template check<std::tuple_size_v<Tuple>>();
  using R = std::remove_cvref_t<decltype(std::apply(function, std::declval<Tuple&>()))>;
  Derivative d = differentiate({what, N::list(), {}, at}, tree_ref(arguments),
                               leaf_function(function, arguments));
  const auto prototype = N::pick(arguments);
  R value = tree_unflatten(*static_cast<const R*>(d.result.ref.tree), d.outputs);
  return std::pair(std::move(value), single_or_tuple(tree_unflatten(prototype, d.gradients)));
}

}  // namespace grad_detail

/// A function (args…) -> (loss, gradient), `function` returning the loss, a scalar of a float type.
/// The gradient is a tree like the argument (argument 0, or value_and_grad<2>(f) argument 2, or
/// value_and_grad<0, 1>(f) a tuple of both); leaves that are not floats get zeros of their type.
/// Works inside jit and outside, and nested. Arrays of outer traces that the function captures are
/// constants to this gradient, not to the outer one.
/// Errors: TraceError if the loss is no float scalar, no leaf is a float, or an op has no gradient.
template <int... Argnum, typename F>
auto value_and_grad(F function, STOW_AT) {
  return [function = std::move(function), at](const auto&... args) mutable {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>>("value_and_grad", function, arguments,
                                                             at);
  };
}

/// A function (args…) -> ((loss, aux), gradient), `function` returning pair(loss, aux), aux being
/// any tree. Otherwise as value_and_grad.
template <int... Argnum, typename F>
auto value_and_grad_aux(F function, STOW_AT) {
  return [function = std::move(function), at](const auto&... args) mutable {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>>("value_and_grad_aux", function,
                                                             arguments, at);
  };
}

/// A function (args…) -> gradient. Otherwise as value_and_grad.
template <int... Argnum, typename F>
auto grad(F function, STOW_AT) {
  return [function = std::move(function), at](const auto&... args) mutable {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>>("grad", function, arguments, at)
        .second;
  };
}

/// The outputs of `function` at `args`, and the product of `cotangent`, a tree like the outputs,
/// with its Jacobian: a tuple of trees like the arguments. JAX's vjp with the pullback applied.
/// Errors: TraceError where the cotangent's structure or a type differs from the outputs'.
template <typename F, Tree R, typename... Args>
auto vjp(F function, const R& cotangent, const Args&... args) {
  check_function<F, AsTree<Args>...>();
  const std::tuple<AsTree<Args>...> arguments(args...);
  Derivative d = differentiate({"vjp", {}, tree_leaves(cotangent), {}}, tree_ref(arguments),
                               leaf_function(function, arguments));
  using Out = std::remove_cvref_t<decltype(function(args...))>;
  static_assert(std::same_as<Out, R>,
                "stowage: the cotangent must be of the type the function returns");
  check_same_structure(d.result.ref, tree_ref(cotangent), "[vjp] output and cotangent:");
  return std::pair(tree_unflatten(cotangent, d.outputs), tree_unflatten(arguments, d.gradients));
}

}  // namespace stow
