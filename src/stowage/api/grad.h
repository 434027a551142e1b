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
  /// Leaves that are no floats are an error unless this is set; then they get zeros of their type.
  bool allow_int = false;
  /// Gradients lie on the device wherever their leaves lie, and are never anywhere else; to have
  /// them in another memory, device_put them there. Off: each lies where its leaf lies, as the
  /// gradient of a move is the move back.
  bool on_device = false;
};

/// The request for a type-erased derivative of a loss, and its answer.
struct GradRequest {
  const char* what;          ///< "grad", for errors.
  std::vector<int> argnums;  ///< Arguments to differentiate by, in the order of the gradients.
  GradOptions options;
  SourceLocation at;
  /// Finds the loss in the result where that has an auxiliary part, too; else the result is the loss.
  TreeRef (*loss)(const TreeRef& result) = nullptr;
};
/// The value of a function and its gradients, leaf by leaf.
struct Derivative {
  std::vector<Array> outputs;    ///< Leaves of what the function returned.
  std::vector<Array> gradients;  ///< Gradients by the leaves of the arguments asked for, by argnum.
  OwnedTree result;              ///< Result of the function; the leaves are of the inner trace.
};
/// Runs the function and its derivative. `arguments`: the tuple of them.
Derivative differentiate(const GradRequest& request, const TreeRef& arguments,
                         const LeafFunction& function);

/// The backward part of a derivative, and the values that it reads.
struct Linearized;
/// A type-erased vjp. The types are abstract arrays.
struct Linearization {
  std::vector<Array> outputs, output_types, argument_types;
  OwnedTree result;
  std::shared_ptr<const Linearized> linearized;
};
/// How a function is linearized, at its arguments unless something else is said.
struct LinearizeRequest {
  const char* what = "vjp";       ///< For errors.
  bool at_zeros = false;          ///< At zeros: the arguments may be types alone.
  bool needs_outputs = true;      ///< Else there are none.
  bool must_be_linear = false;    ///< TraceError where the function is seen not to be.
  /// Finds the last part of the result, which takes no cotangent, if there is one.
  TreeRef (*aux)(const TreeRef& result) = nullptr;
};
Linearization linearize_leaves(const LinearizeRequest& request, const TreeRef& arguments,
                               const LeafFunction& function);
/// Gradients of the leaves of the arguments.
std::vector<Array> pull_back(const Linearized& linearized, const TreeRef& result,
                             const TreeRef& cotangent, SourceLocation at);
/// The same of leaves, given the values that the backward part reads, which may be in another trace
/// than they were made in.
std::vector<Array> pull_back_leaves(const Linearized& linearized, std::span<const Array> residuals,
                                    std::span<const Array> cotangents);
/// The values that the backward part reads.
std::span<const Array> residuals_of(const Linearized& linearized);
/// True if output i depends on the arguments.
bool depends_on_arguments(const Linearized& linearized, size_t i);
/// The leaves at or below these paths, by path. Errors: TraceError for a path that the tree has not.
std::map<std::string, Array> selected_leaves(const TreeRef& tree,
                                             const std::vector<std::string>& paths,
                                             SourceLocation at);
/// Puts leaves back at their paths.
void replace_selected(const TreeRef& tree, const std::map<std::string, Array>& leaves,
                      SourceLocation at);
/// Throws TraceError where one is no float.
void check_jacobian(const char* what, const Array& x, const Array& y);
/// The Jacobian of y by x, `row` giving the product of a cotangent with it.
Array jacobian_of(const Array& x, const Array& y, const std::function<Array(const Array&)>& row);

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

// The two parts of a result pair(result, aux).
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
  static_assert(tree_detail::is_pair<R>, "stowage: the function must return std::pair(result, aux), aux being "
                            "any tree of arrays");
}

// The result of a function whose Jacobian is asked for.
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

// One argnum gives its tree, several a tuple of theirs.
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

/// A function (args…) -> (loss, gradient), `function` returning the loss, a scalar of a float type.
/// The gradient is a tree like the argument (argument 0, or value_and_grad<2>(f) argument 2, or
/// value_and_grad<0, 1>(f) a tuple of both, in the order asked for).
/// Works inside jit and outside, and nested. Arrays of outer traces that the function captures are
/// constants to this gradient, not to the outer one.
/// Errors: TraceError if the function returns anything but one Array (a loss beside other results:
/// value_and_grad_aux), the loss is no float scalar, a leaf is no float (see GradOptions), or an op
/// has no gradient.
template <int... Argnum, typename F>
auto value_and_grad(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, false>("value_and_grad", *function,
                                                                    arguments, options, at);
  };
}

/// A function (args…) -> ((loss, aux), gradient), `function` returning pair(loss, aux), aux being
/// any tree. Otherwise as value_and_grad.
template <int... Argnum, typename F>
auto value_and_grad_aux(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, true>("value_and_grad_aux", *function,
                                                                   arguments, options, at);
  };
}

/// A function (args…) -> gradient. Otherwise as value_and_grad.
template <int... Argnum, typename F>
auto grad(F function, GradOptions options = {}, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), options, at](const auto&... args) {
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    return grad_detail::run<grad_detail::Argnums<Argnum...>, false>("grad", *function, arguments,
                                                                    options, at)
        .second;
  };
}

/// As grad of a function that returns pair(loss, aux): a function (args…) -> (gradient, aux).
template <int... Argnum, typename F>
auto grad_aux(F function, GradOptions options = {}, STOW_AT) {
  return
      [f = value_and_grad_aux<Argnum...>(std::move(function), options, at)](const auto&... args) {
        auto [value, gradient] = f(args...);
        return std::pair(std::move(gradient), std::move(value.second));
      };
}

/// The transpose of a function's derivative at one point; made by vjp().
template <typename R, typename Arguments>
class Pullback {
 public:
  Pullback(R result, Arguments arguments, std::shared_ptr<const Linearized> linearized)
      : result_(std::move(result)),
        arguments_(std::move(arguments)),
        linearized_(std::move(linearized)) {}

  /// The product of `cotangent`, a tree like the function's result, with its Jacobian: a tuple of
  /// trees like the arguments. Leaves that are no floats take any cotangent and get zeros. May be
  /// called any number of times, in the trace that vjp() was called in or one nested in it (outside
  /// any, where vjp() was); the forward work is not repeated, but for what a checkpoint policy says
  /// where it is called once.
  /// Errors: TraceError naming the leaf where the cotangent differs from the result.
  Arguments operator()(const R& cotangent, STOW_AT) const {
    return tree_unflatten(arguments_,
                          pull_back(*linearized_, tree_ref(result_), tree_ref(cotangent), at));
  }
  const Arguments& argument_types() const { return arguments_; }  ///< The leaves are abstract.

 private:
  R result_;  // leaves of types alone, as those of the arguments
  Arguments arguments_;
  std::shared_ptr<const Linearized> linearized_;
};

/// The outputs of `function` at `args`, and its pullback. Outside a trace the pullback holds every
/// value that it needs; checkpoint policies count only within one.
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

/// As vjp of a function that returns pair(outputs, aux), aux being any tree: a tuple (outputs,
/// pullback, aux), the pullback taking a tree like the outputs alone.
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

/// The leaves of `tree` at these paths or below them, by path. A `*` stands for any one field, key
/// or index: "layers/*/w1".
/// Errors: TraceError if a path has no leaf, with the nearest that there is.
template <concepts::Tree T>
std::map<std::string, Array> select_leaves(const T& tree, const std::vector<std::string>& paths,
                                           STOW_AT) {
  return selected_leaves(tree_ref(tree), paths, at);
}
/// `tree` with these leaves in place of its own. Errors: TraceError for a path that is no leaf's.
template <concepts::Tree T>
T replace_leaves(const T& tree, const std::map<std::string, Array>& leaves, STOW_AT) {
  T copy = tree;
  replace_selected(tree_ref(copy), leaves, at);
  return copy;
}

/// A function (args…) -> (loss, gradient of the leaves of argument 0 at these paths, by path). The
/// other leaves are constants to it: their gradients cost nothing.
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
/// The gradient alone.
template <typename F>
auto grad_by_path(std::vector<std::string> paths, F function, STOW_AT) {
  return [f = value_and_grad_by_path(std::move(paths), std::move(function), at)](
             const auto&... args) { return f(args...).second; };
}

/// The Jacobian of a function from one array to one array, by reverse mode over all elements of the
/// result at once. Shapes: x [I…], function(x, …) [O…]; returns [O…, I…]. Further arguments are
/// constants to it. Errors: TraceError where x or the result is no float.
template <typename F>
auto jacrev(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) { return grad_detail::one_array(*function, at, rest...); };
        const auto [y, pullback] = vjp(of_x, x);
        const auto& pull = pullback;
        return jacobian_of(x, y, [&pull](const Array& ct) { return std::get<0>(pull(ct)); });
      };
}
/// As jacrev of a function that returns pair(result, aux): a function (args…) -> (Jacobian, aux).
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
/// jacrev by its other name.
template <typename F>
auto jacobian(F function) {
  return jacrev(std::move(function));
}
/// The second derivatives of a function from one array to one array, often a scalar.
/// Shapes: x [I…], function(x, …) [O…]; returns [O…, I…, I…].
template <typename F>
auto hessian(F function) {
  return jacrev(jacrev(std::move(function)));
}
/// As hessian of a function that returns pair(result, aux): a function (args…) -> (Hessian, aux).
template <typename F>
auto hessian_aux(F function) {
  return jacrev_aux(jacrev_aux(std::move(function)));
}

}  // namespace stow
