// Transforms, and ways of joining functions, that random functions are made of.
#include "stowage/stowage.h"
#include "tests/fuzz/random_function.h"
#include "tests/fuzz/random_program.h"

namespace stow::testing {
namespace {

using Inner = std::span<const Function>;
using Numbers = std::span<const int>;
using Pair = std::pair<Array, Array>;

Array then(const Array& x, Inner f, Numbers) {
  return f[1](f[0](x));
}
Array mul(const Array& x, Inner f, Numbers) {
  return f[0](x) * f[1](x);
}
Array sub(const Array& x, Inner f, Numbers) {
  return f[0](x) - f[1](x);
}
Array residual(const Array& x, Inner f, Numbers) {
  return x + f[0](tanh(x));
}
Array where_either(const Array& x, Inner f, Numbers) {
  return where(x > 0, f[0](x), f[1](x));
}
Array join(const Array& x, Inner f, Numbers n) {
  const Array both = concatenate({f[0](x), f[1](flip(x))});  // [8]
  return n[0] ? both.slice(0, 2, 6) : both.slice(0, 1, 8, 2);
}
Array outer_of(const Array& x, Inner f, Numbers) {
  return einsum("i,j,ij->j", {f[0](x), f[1](x), captured_weights()});
}
Array slices(const Array& x, Inner f, Numbers n) {
  const auto at = [&](const Array& i) {
    return sum(dynamic_slice(f[0](x), {i}, {2}) * dynamic_slice(x, {3 - i}, {2}));
  };
  return vmap(at)(arange(4) * (1 + n[0]));
}
Array update_slices(const Array& x, Inner f, Numbers) {
  const auto at = [&](const Array& i, const Array& t) {
    return dynamic_update_slice(f[0](x), x.slice(0, 0, 2) * t, {i});
  };
  return sum(vmap(at)(arange(4) - 1, x), 0) * 0.3;
}

PolicyPtr policy(int n) {
  switch (n) {
    case 0:
      return nullptr;
    case 1:
      return dots_saveable();
    case 2:
      return everything_saveable();
    case 3:
      return save_only_these_names({"a"});
    case 4:
      return save_and_offload_only_these_names({}, {"a"});
    case 5:
      return save_anything_except_these_names({"a"});
    default:
      return random_policy(static_cast<uint64_t>(n));
  }
}
Array checkpointed(const Array& x, Inner f, Numbers n) {
  return checkpoint(f[0], n[0] < 3 ? policy(n[0]) : random_policy(static_cast<uint64_t>(n[0])))(x);
}
Array named(const Array& x, Inner f, Numbers n) {
  return checkpoint([&](const Array& t) { return sin(checkpoint_name(f[0](sin(t)) + t, "a")) * t; },
                    policy(n[0]))(x);
}
Array away(const Array& x, Inner f, Numbers n) {
  const MemoryKind kind = n[0] ? MemoryKind::kDisk : MemoryKind::kPinnedHost;
  return f[0](device_put(device_put(x, kind), MemoryKind::kDevice)) * x;
}
Array barrier(const Array& x, Inner f, Numbers) {
  return optimization_barrier(f[0](optimization_barrier(x)));
}
Array stopped(const Array& x, Inner f, Numbers) {
  const Array y = f[0](x);
  return y + (stop_gradient(y) * 0.5 - stop_gradient(y * 0.5));
}
Array jitted(const Array& x, Inner f, Numbers) {
  return jit(f[0])(x);
}

// Rules that say what the function's derivative is.
Array own_vjp(const Array& x, Inner f, Numbers) {
  const auto forward = [&](const Array& t) { return Pair(f[0](t), t); };
  const auto backward = [&](const Array& t, const Array& cotangent) {
    return std::get<0>(vjp(f[0], t).second(cotangent));
  };
  return custom_vjp(f[0], forward, backward)(x);
}
Array own_jvp(const Array& x, Inner f, Numbers) {
  using One = std::tuple<Array>;
  return custom_jvp(f[0], [&](const One& at, const One& along) { return jvp(f[0], at, along); })(x);
}

Array map_rows(const Array& x, Inner f, Numbers n) {
  const Array xs = n[0] ? outer(x, cos(arange(3, DType::kF64))) : stack({x, x * 2, x + 1});
  return sum(vmap(f[0], n[0], n[1])(xs), n[1]) * 0.3;
}
Array map_numbers(const Array& x, Inner f, Numbers) {
  return vmap([&](const Array& t) { return sum(f[0](x * t)); })(x) * 0.3;
}
Array map_tree(const Array& x, Inner f, Numbers n) {
  const auto one = [&](const Pair& p, const Array& t) {
    return Pair(f[0](p.first * t), p.second + t);
  };
  const auto [a, b] = vmap(one, {{{"0", n[0] - 1}, {"1", std::nullopt}}, 0}, {-1, 0})(
      Pair(n[0] == 0 || n[0] == 2 ? stack({x, -x}, 1) : stack({x, sin(x)}), x), x.slice(0, 1, 3));
  return matmul(a, b.slice(1, 0, 1)).reshape({4}) * 0.3;
}
Array map_twice(const Array& x, Inner f, Numbers n) {
  const Array xs = stack({outer(x, x), outer(sin(x), x + 1)});  // [2, 4, 4]
  return sum(vmap(vmap(f[0], n[0], n[1]), 0, 1)(xs), {0, 1}) * 0.1;
}

Array loss(const Array& y, const Array& x) {
  return sum(sin(y) * x);
}
Array grad_of(const Array& x, Inner f, Numbers) {
  return tanh(grad([&](const Array& y) { return loss(f[0](y), x); })(x));
}
Array jvp_of(const Array& x, Inner f, Numbers) {
  return tanh(jvp(f[0], std::tuple(x), std::tuple(cos(x))).second);
}
Array vjp_of(const Array& x, Inner f, Numbers) {
  return tanh(std::get<0>(vjp(f[0], x).second(sin(x))));
}
Array vjp_of_many(const Array& x, Inner f, Numbers) {
  const auto pullback = vjp(f[0], x).second;
  const auto pull = [&](const Array& ct) { return std::get<0>(pullback(ct)); };
  return tanh(sum(vmap(pull)(stack({sin(x), x})), 0) - pull(x));
}
Array linearized(const Array& x, Inner f, Numbers) {
  const auto along = linearize(f[0], x).second;
  return tanh(sum(vmap([&](const Array& v) { return along(v); })(stack({x, cos(x)})), 0));
}
Array transposed(const Array& x, Inner f, Numbers) {
  const auto along = linearize(f[0], x).second;
  const auto transpose = linear_transpose([&](const Array& v) { return along(v); }, x);
  return tanh(std::get<0>(transpose(cos(x))));
}
Array jacobian_rows(const Array& x, Inner f, Numbers) {
  return tanh(matmul(jacrev(f[0])(x), x));
}
Array jacobian_columns(const Array& x, Inner f, Numbers) {
  return tanh(matmul(x, jacfwd(f[0])(x)));
}
Array curvature(const Array& x, Inner f, Numbers) {
  const auto g = grad([&](const Array& y) { return loss(f[0](y), cos(x)); });
  return tanh(jvp(g, std::tuple(x), std::tuple(sin(x))).second);
}
// Steps down a gradient.
Array descend(const Array& x, Inner f, Numbers n) {
  const auto g = grad([&](const Array& y) { return loss(f[0](y), x); });
  return fori_loop(
      0, n[0], [&](const Array&, const Array& c) { return c - tanh(g(c)) * 0.2; }, x);
}
Array gradients_of_rows(const Array& x, Inner f, Numbers n) {
  const auto g = grad([&](const Array& y, const Array& t) { return loss(f[0](y), x) * t; });
  const Array xs = n[0] ? stack({x, x * 0.5, -x}, 1) : stack({x, x * 0.5, -x});
  return tanh(sum(vmap(g, {n[0], 0})(xs, x.slice(0, 0, 3)), 0));
}
Array scanned_gradients(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Array& c, const Array& t) {
    const auto [value, g] = value_and_grad([&](const Array& y) { return loss(f[0](y), t); })(c);
    return Pair(tanh(c - g), value);
  };
  const auto [carry, ys] = scan(body, x, stack({x, cos(x)}), {.reverse = n[0] != 0});
  return carry * sum(ys);
}

}  // namespace

std::vector<FunctionKind> transform_functions() {
  return {
      {"then", 2, {}, then},
      {"mul", 2, {}, mul},
      {"sub", 2, {}, sub},
      {"residual", 1, {}, residual},
      {"where_either", 2, {}, where_either},
      {"join", 2, {2}, join},
      {"outer", 2, {}, outer_of},
      {"slices", 1, {2}, slices},
      {"update_slices", 1, {}, update_slices},
      {"checkpoint", 1, {16}, checkpointed},
      {"named", 1, {16}, named},
      {"away", 1, {2}, away},
      {"barrier", 1, {}, barrier},
      {"stopped", 1, {}, stopped},
      {"jit", 1, {}, jitted},
      {"custom_vjp", 1, {}, own_vjp},
      {"custom_jvp", 1, {}, own_jvp},
      {"map_rows", 1, {2, 2}, map_rows},
      {"map_numbers", 1, {}, map_numbers},
      {"map_tree", 1, {3}, map_tree},
      {"map_twice", 1, {2, 2}, map_twice},
      {"grad", 1, {}, grad_of},
      {"jvp", 1, {}, jvp_of},
      {"vjp", 1, {}, vjp_of},
      {"vjp_of_many", 1, {}, vjp_of_many},
      {"linearize", 1, {}, linearized},
      {"transpose", 1, {}, transposed},
      {"jacrev", 1, {}, jacobian_rows},
      {"jacfwd", 1, {}, jacobian_columns},
      {"curvature", 1, {}, curvature},
      {"descend", 1, {3}, descend},
      {"gradients_of_rows", 1, {2}, gradients_of_rows},
      {"scanned_gradients", 1, {2}, scanned_gradients},
  };
}

}  // namespace stow::testing
