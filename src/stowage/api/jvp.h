// jvp, jacfwd, linearize, linear_transpose: forward-mode derivatives, made of reverse mode.
// Not rules of their own: an op without a gradient has no jvp either.
#pragma once

#include "stowage/api/grad.h"

namespace stow {

// The pullback of a function is linear in the cotangent, and the transpose of that is the function's
// derivative itself. Under jit the work of the pullback at zeros is dead code; what is left is what
// forward mode computes, after the forward work.

/// Throws TraceError naming the first leaf where a tangent is not of the type of its primal.
void check_tangents(const char* what, const TreeRef& primals, const TreeRef& tangents,
                    SourceLocation at);
/// Throws TraceError naming the first leaf, of an argument or of the result, that is no float.
void check_linear_types(const Linearization& transpose, const TreeRef& arguments);
/// The Jacobian of y by x, `column` giving the product of it with a tangent.
Array forward_jacobian_of(const Array& x, const Array& y,
                          const std::function<Array(const Array&)>& column);

namespace jvp_detail {

// The transpose of a function that is linear in its arguments, of which the types alone count.
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

  /// The product of the Jacobian with `tangents`, trees of the types of the arguments: a tree like
  /// the function's result. Leaves that are no floats take any tangent; those of the result are
  /// zeros. May be called any number of times, where a Pullback may; the forward work is not
  /// repeated.
  /// Errors: TraceError naming the leaf where a tangent differs from its argument.
  R operator()(const Args&... tangents, STOW_AT) const {
    const Arguments along(tangents...);
    check_tangents("linearize", tree_ref(arguments_), tree_ref(along), at);
    return std::get<0>(transpose_(along, at));
  }

 private:
  Arguments arguments_;  // leaves of types alone
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

/// pair(function(args…), its derivative there as a function of tangents): jvp with the forward work
/// done once for many tangents. Errors: as vjp.
///   auto [y, along] = linearize(f, x);  const Array dy = along(dx);
/// Source:  JAX's jax.linearize.
template <typename F, typename... Args>
auto linearize(F function, const Args&... args) {
  auto [outputs, pullback] = vjp(std::move(function), args...);
  auto along = jvp_detail::pushforward(outputs, pullback);
  return std::pair(std::move(outputs), std::move(along));
}

/// As linearize of a function that returns pair(outputs, aux), aux being any tree: a tuple (outputs,
/// derivative, aux).
template <typename F, typename... Args>
auto linearize_aux(F function, const Args&... args) {
  auto [outputs, pullback, aux] = vjp_aux(std::move(function), args...);
  auto along = jvp_detail::pushforward(outputs, pullback);
  return std::tuple(std::move(outputs), std::move(along), std::move(aux));
}

/// The transpose of a linear function of trees of floats like `args`, of which the types alone
/// count: they may be abstract. It takes a tree like the function's result and gives a tuple like
/// the arguments. What the function captures it may depend on in any way.
/// Errors:  TraceError naming the leaf where an argument or result is no float, or where the
///          cotangent differs from the result; where the function is seen not to be linear, with the
///          value at fault (a constant that is added is not seen, as in JAX).
/// Source:  JAX's jax.linear_transpose.
template <typename F, typename... Args>
auto linear_transpose(F function, const Args&... args) {
  const LinearizeRequest request{
      .what = "linear_transpose", .at_zeros = true, .needs_outputs = false, .must_be_linear = true};
  return jvp_detail::transpose(request, function, std::tuple<AsTree<Args>...>(args...));
}

/// pair(function(primals…), its derivative there along `tangents`). Tangents have the types of the
/// primals and the derivative that of the result; leaves that are no floats take any and get zeros.
///   auto [g, hv] = jvp(grad(f), std::tuple(x), std::tuple(v));  // a Hessian-vector product
/// Works inside jit and outside, nested, and under vmap. Rules of custom_vjp count, where JAX has
/// none for them; a while_loop has no derivative.
/// Errors:  TraceError where a tangent differs from its primal, or as vjp.
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

/// As jvp of a function that returns pair(outputs, aux), aux being any tree: a tuple (outputs,
/// derivative, aux).
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

/// The Jacobian of a function from one array to one array, by jvp along every element of x at once:
/// cheaper than jacrev where x has fewer elements than the result. Shapes: as jacrev.
template <typename F>
auto jacfwd(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        const auto of_x = [&](const Array& at) { return grad_detail::one_array(*function, at, rest...); };
        const auto [y, along] = linearize(of_x, x);
        return forward_jacobian_of(x, y, [&f = along](const Array& dx) { return f(dx); });
      };
}
/// As jacfwd of a function that returns pair(result, aux): a function (args…) -> (Jacobian, aux).
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
