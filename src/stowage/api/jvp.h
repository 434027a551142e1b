// jvp, jacfwd: forward-mode derivatives, made of reverse mode.
// Not rules of their own: an op without a gradient has no jvp either.
#pragma once

#include "stowage/api/grad.h"

namespace stow {

// The pullback of a function is linear in the cotangent, and the pullback of that is the function's
// derivative itself. Under jit the work of the first pullback is dead code; what is left is what
// forward mode computes, after the forward work.

/// Zeros like the leaves of a tree, to stand for its cotangents.
std::vector<Array> zero_leaves(const TreeRef& tree);
/// Throws TraceError naming the first leaf where a tangent is not of the type of its primal.
void check_tangents(const TreeRef& primals, const TreeRef& tangents, SourceLocation at);
Array forward_jacobian_of(const Array& x, const std::function<Array(const Array&)>& function);

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
  check_tangents(tree_ref(given), tree_ref(along), at);
  auto linear = std::apply([&](const auto&... args) { return vjp(function, args...); }, given);
  using R = std::remove_cvref_t<decltype(linear.first)>;
  const auto transposed = [&linear](const R& cotangent) { return linear.second(cotangent); };
  const R zeros = tree_unflatten(linear.first, zero_leaves(tree_ref(linear.first)));
  const auto forward = vjp(transposed, zeros).second;
  R derivative = std::get<0>(forward(along, at));
  return std::pair(std::move(linear.first), std::move(derivative));
}

/// The Jacobian of a function from one array to one array, by jvp along every element of x at once:
/// cheaper than jacrev where x has fewer elements than the result. Shapes: as jacrev.
template <typename F>
auto jacfwd(F function) {
  return
      [function = std::make_shared<F>(std::move(function))](const Array& x, const auto&... rest) {
        return forward_jacobian_of(x,
                                   [&](const Array& at) { return Array((*function)(at, rest...)); });
      };
}

}  // namespace stow
