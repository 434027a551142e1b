// grad, value_and_grad, vjp, jacrev: reverse-mode derivatives as functions of functions.
// Not the differentiation itself; that is autodiff/reverse.h.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "stowage/api/jit.h"

namespace stow {

struct GradOptions {
  /// True: the gradient of a leaf that is no float is zeros of its type. False: such a leaf is an
  /// error.
  bool allow_int = false;
  /// True: all gradients are in device memory. False: each is in the memory kind of its leaf,
  /// because the gradient of a move is the move back.
  bool on_device = false;
};

/// A request for the type-erased derivative of a loss.
struct GradRequest {
  const char* what;          ///< "grad", for errors.
  std::vector<int> argnums;  ///< Arguments to differentiate by, in the order of the gradients.
  GradOptions options;
  SourceLocation at;
  /// Returns the loss in a result pair(loss, aux). Null: the result is the loss.
  TreeRef (*loss)(const TreeRef& result) = nullptr;
};
/// The value of a function and its gradients, leaf by leaf.
struct Derivative {
  std::vector<Array> outputs;    ///< Leaves of the function's result.
  std::vector<Array> gradients;  ///< Gradients by the leaves of the arguments `argnums`, in order.
  OwnedTree result;              ///< The result's tree; its leaves belong to the inner trace.
};
/// Runs the function and its derivative. `arguments`: the tuple of arguments.
Derivative differentiate(const GradRequest& request, const TreeRef& arguments,
                         const LeafFunction& function);

/// The backward graph of a derivative, and the residuals that it reads.
struct Linearized;
/// A type-erased result of vjp. `output_types` and `argument_types` are abstract arrays.
struct Linearization {
  std::vector<Array> outputs, output_types, argument_types;
  OwnedTree result;
  std::shared_ptr<const Linearized> linearized;
};
/// Options of linearize_leaves.
struct LinearizeRequest {
  const char* what = "vjp";     ///< Name of the transform in errors.
  bool at_zeros = false;        ///< True: linearizes at zeros; the arguments may be abstract.
  bool needs_outputs = true;    ///< False: Linearization::outputs is empty.
  bool must_be_linear = false;  ///< True: TraceError if the function is found not to be linear.
  /// Returns the auxiliary part of a result pair(outputs, aux), which takes no cotangent. Null: the
  /// result has none.
  TreeRef (*aux)(const TreeRef& result) = nullptr;
};
/// Runs the forward part of a function's vjp at `arguments` (see at_zeros).
Linearization linearize_leaves(const LinearizeRequest& request, const TreeRef& arguments,
                               const LeafFunction& function);
/// Runs the backward part: returns the cotangents of the arguments' leaves. `result`: a tree like
/// the function's result. `cotangent`: the cotangent of the result.
std::vector<Array> pull_back(const Linearized& linearized, const TreeRef& result,
                             const TreeRef& cotangent, SourceLocation at);
/// pull_back for leaves and with the given residuals, which may belong to another trace than
/// residuals_of(linearized).
std::vector<Array> pull_back_leaves(const Linearized& linearized, std::span<const Array> residuals,
                                    std::span<const Array> cotangents);
/// The values that the backward graph reads.
std::span<const Array> residuals_of(const Linearized& linearized);
/// True if output i depends on the arguments. Only after a request with must_be_linear.
bool depends_on_arguments(const Linearized& linearized, size_t i);
/// The leaves at or below these paths, by path. Errors: TraceError for a path without a leaf.
std::map<std::string, Array> selected_leaves(const TreeRef& tree,
                                             const std::vector<std::string>& paths,
                                             SourceLocation at);
/// Replaces the leaves at these paths.
void replace_selected(const TreeRef& tree, const std::map<std::string, Array>& leaves,
                      SourceLocation at);
/// Throws TraceError if x or y is no float.
void check_jacobian(const char* what, const Array& x, const Array& y);
/// The Jacobian of y by x. `row` returns the product of a cotangent of y with the Jacobian.
Array jacobian_of(const Array& x, const Array& y, const std::function<Array(const Array&)>& row);

namespace grad_detail {

template <int... I>
struct Argnums {
  static std::vector<int> list() { return {I...}; }
  template <size_t n>
  static constexpr void check() {
    static_assert(((I >= 0 && I < static_cast<int>(n)) && ...),
                  "stowage: expected argnums from 0 to the number of arguments, less 1");
  }
  template <typename Tuple>
  static std::tuple<std::tuple_element_t<I, Tuple>...> pick(const Tuple& arguments) {
    return {std::get<I>(arguments)...};
  }
};
template <>
struct Argnums<> : Argnums<0> {};

// The two parts of a pair(result, aux).
template <typename Pair>
TreeRef result_of(const TreeRef& result) {
  return tree_ref(static_cast<const Pair*>(result.tree)->first);
}
template <typename Pair>
TreeRef aux_of(const TreeRef& result) {
  return tree_ref(static_cast<const Pair*>(result.tree)->second);
}
template <typename R>
constexpr void check_pair() {
  static_assert(tree_detail::is_pair<R>,
                "stowage: the function must return std::pair(result, aux), aux being "
                "any tree of arrays");
}

// Calls a function whose Jacobian is asked for, and checks that it returns one Array.
template <typename F, typename... Args>
Array one_array(F& function, const Args&... args) {
  static_assert(std::is_invocable_v<F&, const Args&...>,
                "stowage: the function cannot be called with these arguments");
  if constexpr (std::is_invocable_v<F&, const Args&...>) {
    using R = std::invoke_result_t<F&, const Args&...>;
    static_assert(std::is_convertible_v<R, Array>,
                  "stowage: the function must return one Array, of which there is a Jacobian; for "
                  "other results beside it, return std::pair(result, others) and use jacrev_aux, "
                  "jacfwd_aux or hessian_aux");
    if constexpr (std::is_convertible_v<R, Array>) return function(args...);
  }
  return {};
}

// The only tree of a tuple of one; else the tuple.
template <typename... T>
auto single_or_tuple(std::tuple<T...> trees) {
  if constexpr (sizeof...(T) == 1)
    return std::get<0>(std::move(trees));
  else
    return trees;
}

template <typename N, bool has_aux, typename F, typename Tuple>
auto run(const char* what, F& function, const Tuple& arguments, GradOptions options,
         SourceLocation at) {
  []<typename... Args>(const std::tuple<Args...>*) { check_function<F, Args...>(); }(&arguments);
  N::template check<std::tuple_size_v<Tuple>>();
  using R = std::remove_cvref_t<decltype(std::apply(function, std::declval<Tuple&>()))>;
  GradRequest request{what, N::list(), options, at};
  if constexpr (has_aux) {
    check_pair<R>();
    if constexpr (tree_detail::is_pair<R>) request.loss = result_of<R>;
  }
  Derivative d =
      differentiate(request, tree_ref(arguments), leaf_function(function, arguments));
  const auto prototype = N::pick(arguments);
  R value = tree_unflatten(*static_cast<const R*>(d.result.ref.tree), d.outputs);
  return std::pair(std::move(value), single_or_tuple(tree_unflatten(prototype, d.gradients)));
}

}  // namespace grad_detail

/// Returns a function (args…) -> (loss, gradient). `function` returns the loss, a float scalar. The
/// gradient is a tree like argument 0; for value_and_grad<2>(f) like argument 2; for
/// value_and_grad<0, 1>(f) a tuple of both gradients, in that order.
/// Works inside and outside of jit, and nested. Captured arrays of outer traces are constants for
/// this gradient, but not for gradients of the outer traces.
/// Errors: TraceError if the function does not return one Array (use value_and_grad_aux for a loss
/// with other results), the loss is not a float scalar, a leaf is no float (see GradOptions), or an
/// op has no gradient.
template <int... Argnum, typename F>
auto value_and_grad(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, false>("value_and_grad", *function,
                                                                    arguments, options, at);
  };
}

/// value_and_grad for a function that returns pair(loss, aux), where aux is any tree. Returns a
/// function (args…) -> ((loss, aux), gradient).
template <int... Argnum, typename F>
auto value_and_grad_aux(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, true>("value_and_grad_aux", *function,
                                                                   arguments, options, at);
  };
}

/// Returns a function (args…) -> gradient. Otherwise as value_and_grad.
template <int... Argnum, typename F>
auto grad(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, false>("grad", *function, arguments,
                                                                    options, at)
        .second;
  };
}

/// grad for a function that returns pair(loss, aux). Returns a function (args…) -> (gradient, aux).
template <int... Argnum, typename F>
auto grad_aux(F function, GradOptions options = {}, STOW_AT) {
  return
      [f = value_and_grad_aux<Argnum...>(std::move(function), options, at)](const auto&... args) {
        auto [value, gradient] = f(args...);
        return std::pair(std::move(gradient), std::move(value.second));
      };
}

/// The transpose of a function's derivative at one point. Made by vjp().
template <typename R, typename Arguments>
class Pullback {
 public:
  Pullback(R result, Arguments arguments, std::shared_ptr<const Linearized> linearized)
      : result_(std::move(result)),
        arguments_(std::move(arguments)),
        linearized_(std::move(linearized)) {}

  /// Returns the product of `cotangent`, a tree like the function's result, with the Jacobian: a
  /// tuple of trees like the arguments. Results that are no floats take any cotangent; arguments
  /// that are no floats get zeros. May be called any number of times, in the trace of the call of
  /// vjp() or in a nested one; outside of any trace if vjp() was called there. The forward work is
  /// not repeated, except for recomputation that a checkpoint policy asks for.
  /// Errors: TraceError naming the leaf whose cotangent does not have the result's type.
  Arguments operator()(const R& cotangent, STOW_AT) const {
    return tree_unflatten(arguments_,
                          pull_back(*linearized_, tree_ref(result_), tree_ref(cotangent), at));
  }
  const Arguments& argument_types() const { return arguments_; }  ///< The leaves are abstract.

 private:
  R result_;  // abstract arrays: types without data; arguments_ too
  Arguments arguments_;
  std::shared_ptr<const Linearized> linearized_;
};

/// Returns pair(function(args…), its pullback). Outside a trace the pullback holds every residual;
/// checkpoint policies take effect inside a trace only.
/// Source: JAX's jax.vjp.
template <typename F, typename... Args>
auto vjp(F function, const Args&... args) {
  check_function<F, AsTree<Args>...>();
  using Arguments = std::tuple<AsTree<Args>...>;
  const Arguments arguments(args...);
  using R = std::remove_cvref_t<decltype(std::apply(function, std::declval<Arguments&>()))>;
  Linearization l = linearize_leaves({}, tree_ref(arguments), leaf_function(function, arguments));
  const R& like = *static_cast<const R*>(l.result.ref.tree);
  R outputs = tree_unflatten(like, l.outputs);
  return std::pair(
      std::move(outputs),
      Pullback<R, Arguments>(tree_unflatten(like, l.output_types),
                             tree_unflatten(arguments, l.argument_types), std::move(l.linearized)));
}

/// vjp for a function that returns pair(outputs, aux), where aux is any tree. Returns a tuple
/// (outputs, pullback, aux); the pullback takes a tree like the outputs.
///   auto [y, pullback, aux] = vjp_aux(f, x);
template <typename F, typename... Args>
auto vjp_aux(F function, const Args&... args) {
  check_function<F, AsTree<Args>...>();
  using Arguments = std::tuple<AsTree<Args>...>;
  const Arguments arguments(args...);
  using Pair = std::remove_cvref_t<decltype(std::apply(function, std::declval<Arguments&>()))>;
  grad_detail::check_pair<Pair>();
  using R = typename Pair::first_type;
  Linearization l = linearize_leaves({.what = "vjp_aux", .aux = grad_detail::aux_of<Pair>},
                                     tree_ref(arguments), leaf_function(function, arguments));
  const Pair& like = *static_cast<const Pair*>(l.result.ref.tree);
  Pair outputs = tree_unflatten(like, l.outputs);
  return std::tuple(
      std::move(outputs.first),
      Pullback<R, Arguments>(tree_unflatten(like, l.output_types).first,
                             tree_unflatten(arguments, l.argument_types), std::move(l.linearized)),
      std::move(outputs.second));
}

/// Returns the leaves of `tree` at or below these paths, by path. A `*` matches any one field, key
/// or index: "layers/*/w1".
/// Errors: TraceError for a path without a leaf, with the nearest path.
template <concepts::Tree T>
std::map<std::string, Array> select_leaves(const T& tree, const std::vector<std::string>& paths,
                                           STOW_AT) {
  return selected_leaves(tree_ref(tree), paths, at);
}
/// Returns `tree` with the leaves at these paths replaced. Errors: TraceError for a path that is
/// not the path of a leaf.
template <concepts::Tree T>
T replace_leaves(const T& tree, const std::map<std::string, Array>& leaves, STOW_AT) {
  T copy = tree;
  replace_selected(tree_ref(copy), leaves, at);
  return copy;
}

/// Returns a function (args…) -> (loss, gradients). The gradients are those by the leaves of
/// argument 0 at or below `paths` (see select_leaves), by path. No work is done for other leaves.
/// Errors: as value_and_grad and select_leaves.
template <typename F>
auto value_and_grad_by_path(std::vector<std::string> paths, F function, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), paths = std::move(paths), at](
             const auto& first, const auto&... rest) {
    const auto of_selected = [&](const std::map<std::string, Array>& leaves,
                                 const auto&... others) {
      return (*function)(replace_leaves(first, leaves), others...);
    };
    return value_and_grad(of_selected, {}, at)(select_leaves(first, paths, at), rest...);
  };
}
/// Returns a function (args…) -> gradients. Otherwise as value_and_grad_by_path.
template <typename F>
auto grad_by_path(std::vector<std::string> paths, F function, STOW_AT) {
  return [f = value_and_grad_by_path(std::move(paths), std::move(function), at)](
             const auto&... args) { return f(args...).second; };
}

/// Returns a function (x, rest…) -> Jacobian by x, for a function from one array to one array. It
/// runs reverse mode for all elements of the result at once. The arguments after x are constants.
/// Shapes: x [I…], function(x, …) [O…]; the Jacobian [O…, I…].
/// Errors: TraceError if x or the result is no float.
template <typename F>
auto jacrev(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) {
          return grad_detail::one_array(*function, at, rest...);
        };
        const auto [y, pullback] = vjp(of_x, x);
        const auto& pull = pullback;
        return jacobian_of(x, y, [&pull](const Array& ct) { return std::get<0>(pull(ct)); });
      };
}
/// jacrev for a function that returns pair(result, aux). Returns a function (args…) -> (Jacobian,
/// aux).
template <typename F>
auto jacrev_aux(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) { return (*function)(at, rest...); };
        auto [y, pullback, aux] = vjp_aux(of_x, x);
        const auto& pull = pullback;
        Array j = jacobian_of(x, y, [&pull](const Array& ct) { return std::get<0>(pull(ct)); });
        return std::pair(std::move(j), std::move(aux));
      };
}
/// Another name of jacrev, as in JAX.
template <typename F>
auto jacobian(F function) {
  return jacrev(std::move(function));
}
/// Returns a function (x, rest…) -> second derivatives by x, for a function from one array to one
/// array, usually a scalar.
/// Shapes: x [I…], function(x, …) [O…]; the second derivatives [O…, I…, I…].
template <typename F>
auto hessian(F function) {
  return jacrev(jacrev(std::move(function)));
}
/// hessian for a function that returns pair(result, aux). Returns a function (args…) -> (Hessian,
/// aux).
template <typename F>
auto hessian_aux(F function) {
  return jacrev_aux(jacrev_aux(std::move(function)));
}

}  // namespace stow
