// jvp, jacfwd, linearize, linear_transpose: forward-mode derivatives, composed from reverse mode.
// Not a set of forward-mode rules: an op without a gradient has no jvp either.
#pragma once

#include "stowage/api/grad.h"

namespace stow {

// The pullback of a function is linear in the cotangent, and the transpose of the pullback is the
// function's derivative. Under jit the pullback's work at a zero cotangent is dead code. The
// forward work and the work of forward mode remain.

/// Throws TraceError if the trees differ in structure, a leaf is an empty Array, or a tangent does
/// not have the type of its primal (dtype, shape and memory kind, also if the dtype is no float).
/// The message names the first such leaf and, as the function that was called, `what`.
void check_tangents(const char* what, const TreeRef& primals, const TreeRef& tangents,
                    SourceLocation at);
/// Throws TraceError if a leaf of an argument or of the result is no float; it names the first one.
void check_linear_types(const Linearization& transpose, const TreeRef& arguments);
/// The Jacobian of y by x. `column` returns the product of the Jacobian with a tangent of x.
/// Shapes:  [y..., x...].
Array forward_jacobian_of(const Array& x, const Array& y,
                          const std::function<Array(const Array&)>& column);

namespace jvp_detail {

// The transpose of a function that is linear in its arguments. Only the arguments' types are read.
template <typename F, typename... Args>
auto transpose(const LinearizeRequest& request, F& function, const std::tuple<Args...>& arguments) {
  check_function<F, Args...>();
  using R = std::remove_cvref_t<decltype(std::apply(
      function, std::declval<std::tuple<Args...>&>()))>;
  Linearization l =
      linearize_leaves(request, tree_ref(arguments), leaf_function(function, arguments));
  if (request.must_be_linear) check_linear_types(l, tree_ref(arguments));
  return Pullback<R, std::tuple<Args...>>(
      tree_unflatten(*static_cast<const R*>(l.result.ref.tree), l.output_types),
      tree_unflatten(arguments, l.argument_types), std::move(l.linearized));
}

}  // namespace jvp_detail

/// The derivative of a function at one point, as a linear function of tangents; made by
/// linearize().
template <typename R, typename... Args>
class Pushforward {
  using Arguments = std::tuple<Args...>;
  using Transpose = Pullback<Arguments, std::tuple<R>>;

 public:
  Pushforward(Arguments arguments, Transpose transpose)
      : arguments_(std::move(arguments)), transpose_(std::move(transpose)) {}

  /// The product of the Jacobian with `tangents`, trees like the arguments. Returns a tree like the
  /// function's result. The tangent of an argument that is no float has that argument's type, and
  /// its values are ignored. Leaves of the result that are no floats are zeros. May be called any
  /// number of times, in the trace of the call of linearize() or in a nested one; outside of any
  /// trace if linearize() was called there. A call does not repeat the forward work.
  /// Errors: TraceError as check_tangents().
  R operator()(const Args&... tangents, STOW_AT) const {
    const Arguments along(tangents...);
    check_tangents("linearize", tree_ref(arguments_), tree_ref(along), at);
    return std::get<0>(transpose_(along, at));
  }

 private:
  Arguments arguments_;  // abstract arrays: types without data
  Transpose transpose_;
};

namespace jvp_detail {

template <typename R, typename... Args>
auto pushforward(const R& outputs, const Pullback<R, std::tuple<Args...>>& pullback) {
  const auto pull = [&](const R& cotangent) { return pullback(cotangent); };
  const LinearizeRequest request{.what = "linearize", .at_zeros = true, .needs_outputs = false};
  return Pushforward<R, Args...>(pullback.argument_types(),
                                 transpose(request, pull, std::tuple<R>(outputs)));
}

}  // namespace jvp_detail

/// Returns pair(function(args…), the derivative at `args` as a Pushforward). It is jvp with the
/// forward work done once for many tangents. Errors: as vjp.
///   auto [y, along] = linearize(f, x);  const Array dy = along(dx);
/// Source:  JAX's jax.linearize.
template <typename F, typename... Args>
auto linearize(F function, const Args&... args) {
  auto [outputs, pullback] = vjp(std::move(function), args...);
  auto along = jvp_detail::pushforward(outputs, pullback);
  return std::pair(std::move(outputs), std::move(along));
}

/// linearize for a function that returns pair(outputs, aux), where aux is any tree. Returns a tuple
/// (outputs, derivative, aux).
template <typename F, typename... Args>
auto linearize_aux(F function, const Args&... args) {
  auto [outputs, pullback, aux] = vjp_aux(std::move(function), args...);
  auto along = jvp_detail::pushforward(outputs, pullback);
  return std::tuple(std::move(outputs), std::move(along), std::move(aux));
}

/// The transpose of a linear function of trees of floats like `args`. Only the types of `args` are
/// read; they may be abstract. The transpose takes a tree like the function's result and returns a
/// tuple like the arguments. The function need not be linear in arrays that it captures.
/// Errors:  TraceError naming the leaf if an argument or result is no float, or if the cotangent's
///          type differs from the result's; TraceError naming the value at fault if the function is
///          found not to be linear (an added constant is not found, as in JAX).
/// Source:  JAX's jax.linear_transpose.
template <typename F, typename... Args>
auto linear_transpose(F function, const Args&... args) {
  const LinearizeRequest request{
      .what = "linear_transpose", .at_zeros = true, .needs_outputs = false, .must_be_linear = true};
  return jvp_detail::transpose(request, function, std::tuple<AsTree<Args>...>(args...));
}

/// Returns pair(function(primals…), its derivative at `primals` along `tangents`). Tangents have
/// the types of the primals, and the derivative has the type of the result. The values of a tangent
/// are ignored if its primal is no float; the derivative of a result that is no float is zeros.
///   auto [g, hv] = jvp(grad(f), std::tuple(x), std::tuple(v));  // a Hessian-vector product
/// Works inside jit and outside, nested, and under vmap. It uses the rules of custom_vjp functions,
/// which JAX refuses in forward mode. A while_loop has no derivative.
/// Errors:  TraceError if the type of a tangent differs from its primal's; else as vjp.
/// Source:  JAX's jax.jvp; Townsend 2017, "A new trick for calculating Jacobian vector products".
template <typename F, typename... Primals, typename... Tangents>
auto jvp(F function, const std::tuple<Primals...>& primals, const std::tuple<Tangents...>& tangents,
         STOW_AT) {
  using Arguments = std::tuple<AsTree<Primals>...>;
  static_assert(std::same_as<Arguments, std::tuple<AsTree<Tangents>...>>,
                "stowage: the tangents must be trees of the types of the primals");
  const Arguments given(primals), along(tangents);
  check_tangents("jvp", tree_ref(given), tree_ref(along), at);
  auto [outputs, pushforward] =
      std::apply([&](const auto&... args) { return linearize(function, args...); }, given);
  const auto push = [&f = pushforward, at](const auto&... each) { return f(each..., at); };
  auto derivative = std::apply(push, along);
  return std::pair(std::move(outputs), std::move(derivative));
}

/// jvp for a function that returns pair(outputs, aux), where aux is any tree. Returns a tuple
/// (outputs, derivative, aux).
template <typename F, typename... Primals, typename... Tangents>
auto jvp_aux(F function, const std::tuple<Primals...>& primals,
             const std::tuple<Tangents...>& tangents, STOW_AT) {
  using Arguments = std::tuple<AsTree<Primals>...>;
  static_assert(std::same_as<Arguments, std::tuple<AsTree<Tangents>...>>,
                "stowage: the tangents must be trees of the types of the primals");
  const Arguments given(primals), along(tangents);
  check_tangents("jvp_aux", tree_ref(given), tree_ref(along), at);
  auto [outputs, pushforward, aux] =
      std::apply([&](const auto&... args) { return linearize_aux(function, args...); }, given);
  const auto push = [&f = pushforward, at](const auto&... each) { return f(each..., at); };
  auto derivative = std::apply(push, along);
  return std::tuple(std::move(outputs), std::move(derivative), std::move(aux));
}

/// Returns a function (x, rest…) -> Jacobian by x, for a function from one array to one array. It
/// computes jvp along every element of x at once, which is cheaper than jacrev if x has fewer
/// elements than the result. Shapes: as jacrev.
template <typename F>
auto jacfwd(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) {
          return grad_detail::one_array(*function, at, rest...);
        };
        const auto [y, along] = linearize(of_x, x);
        return forward_jacobian_of(x, y, [&f = along](const Array& dx) { return f(dx); });
      };
}
/// jacfwd for a function that returns pair(result, aux). Returns a function (args…) -> (Jacobian,
/// aux).
template <typename F>
auto jacfwd_aux(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) { return (*function)(at, rest...); };
        auto [y, along, aux] = linearize_aux(of_x, x);
        Array j = forward_jacobian_of(x, y, [&f = along](const Array& dx) { return f(dx); });
        return std::pair(std::move(j), std::move(aux));
      };
}

}  // namespace stow
