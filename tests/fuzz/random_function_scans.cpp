// Loops and branches that random functions are made of.
#include "stowage/stowage.h"
#include "tests/fuzz/random_function.h"

namespace stow::testing {
namespace {

using Inner = std::span<const Function>;
using Numbers = std::span<const int>;
using Pair = std::pair<Array, Array>;

ScanOptions options(int reverse, int unroll) {
  return {.reverse = reverse != 0, .unroll = unroll};  // 0: fully
}
Array rows(const Array& x) {  // [3, 4]
  return stack({x, x * 2, x + 1});
}
Array row(const Array& xs, int i) {
  return xs[i];
}

Array scan_rows(const Array& x, Inner f, Numbers n) {
  const auto [carry, ys] = scan(
      [&](const Array& c, const Array& t) {
        const Array next = tanh(f[0](c) * 0.5 + t);
        return Pair(next, next * c);
      },
      x, rows(x), options(n[0], n[1]));
  return carry + row(ys, 0) * row(ys, 2);
}

// What is scanned are numbers, and x is captured.
Array scan_numbers(const Array& x, Inner f, Numbers n) {
  const auto [carry, ys] =
      scan([&](const Array& c, const Array& t) { return Pair(sin(f[0](c) * t + x), sum(c) * t); },
           x * 0.5, x, options(n[0], n[1]));
  return carry + ys;
}

Array scan_nothing(const Array& x, Inner f, Numbers n) {
  return scan([&](const Array& c, const Array&) { return Pair(f[0](c), sum(c)); }, x, zeros({0}),
              options(n[0], 1))
             .first *
         x;
}

Array map_over(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const None&, const Array& t) {
    return std::pair(None{}, sum(f[0](x * t)));
  };
  return scan(body, None{}, x, options(n[0], n[1])).second * 0.3;
}

// Columns are scanned and stacked as columns.
Array scan_columns(const Array& x, Inner f, Numbers n) {
  ScanOptions columns = options(n[0], n[1]);
  columns.axes = {1};
  columns.out_axes = {-1};
  Array xs = transpose(rows(x));  // [4, 3]
  if (n[2]) xs = flip(xs, 1);
  const auto [carry, ys] = scan(
      [&](const Array& c, const Array& t) {
        const Array next = sin(f[0](t) + c);
        return Pair(next, c * t);
      },
      x, xs, columns);
  return carry + matmul(ys, x.slice(0, 0, 3));
}

Array scan_in_blocks(const Array& x, Inner f, Numbers n) {
  NestedScanOptions blocks{.blocks = {n[0]}, .reverse = n[1] != 0};
  if (n[2] == 1) blocks.block_policy = save_only_these_names({"block_in"});
  if (n[2] == 2) blocks.block_policy = save_and_offload_only_these_names({}, {"block_in"});
  if (n[3]) blocks.policy = dots_saveable();
  const auto body = [&](const Array& c, const Array& t) { return Pair(tanh(f[0](c) + t), c * t); };
  const auto [carry, ys] = nested_scan(body, x, stack({x, x * 2, x + 1, x * x, x}), blocks);
  return carry + sum(ys, 0) * 0.3;
}

// A scan whose body scans.
Array scan_twice(const Array& x, Inner f, Numbers n) {
  const auto outer = [&](const Array& c, const Array& t) {
    const auto inner = [&](const Array& d, const Array& u) {
      return Pair(tanh(f[0](d * u) + t), d * c);
    };
    const auto [last, ys] = scan(inner, c, t.slice(0, 0, 2), options(n[1], 1));
    return Pair(last, sum(ys, 0));
  };
  const auto [carry, ys] = scan(outer, x, rows(x), options(n[0], 1));
  return carry + row(ys, 1) - row(ys, 2);
}

// A tree of shapes as carry: of it a number counts, a part stays, and two trade places.
struct Mixed {
  Array matrix, stays, total, i;
};
STOW_TREE(Mixed, matrix, stays, total, i);
Array scan_tree(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Mixed& c, const Pair& t) {
    const Array y = tanh(f[0](c.matrix.reshape({4}) + t.first * c.stays));
    const Mixed next{transpose(y.reshape({2, 2})), c.stays, c.total * 0.5 + y[3] * t.second,
                     c.i + 1};
    return std::pair(next, std::pair(c.i, dynamic_slice(y, {c.i}, {2}) * c.total));
  };
  const Mixed init{x.reshape({2, 2}), x * 0.5, x[1], 0};
  const auto [c, ys] = scan(body, init, Pair(rows(x), x.slice(0, 0, 3)), options(n[0], n[1]));
  return c.matrix.reshape({4}) + c.total + take(x, ys.first.index({arange(4) % 3})) * c.i +
         concatenate({ys.second[0], ys.second[2]}) * c.stays;
}

// Each carry goes through the other's function.
Array scan_crossed(const Array& x, Inner f, Numbers n) {
  using Carry = std::tuple<Array, Array, Array>;
  const auto body = [&](const Carry& c, const Pair& t) {
    const auto& [a, b, i] = c;
    return std::pair(Carry(tanh(f[0](b) + t.first), tanh(f[1](a) * t.second), i + 1),
                     Pair(a.index({i}), b));
  };
  const auto [c, ys] =
      scan(body, Carry(x, x * 2, 0), Pair(stack({x, x + 1, x, x * 0.5}), x), options(n[0], n[1]));
  const auto& [a, b, i] = c;
  return a + b * i * 0.3 + ys.first * row(ys.second, 3);
}

// Fills a buffer that it carries, and reads what it filled before.
Array scan_buffer(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Pair& c, const Array& i) {
    const auto& [buffer, last] = c;
    const Array before = buffer.index({maximum(i - 1, 0)});
    const Array next = tanh(f[0](last) + before * 0.5);
    return Pair(n[1] ? buffer.at({i}).set(next) : buffer.at({i}).add(next), next);
  };
  const auto [buffer, last] = scan(body, Pair(rows(x), x), arange(3), options(n[0], n[2]));
  return sum(buffer * cos(buffer), 0) * 0.4 + last;
}

// (a, b) -> (b, f(a)), of which the last results alone, or none but the stack, are read.
Array scan_shifted(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Pair& c, const Array& t) {
    const Array next = tanh(f[0](c.first)) + t;
    return std::pair(Pair(c.second, next), next * c.second);
  };
  const auto [c, ys] = scan(body, Pair(x, cos(x)), rows(x), options(n[0], n[1]));
  return n[2] ? c.first - c.second * 0.5 : sum(ys, 0) * 0.3;
}

// A concatenation is scanned as a whole, in part, and reversed.
Array scan_parts(const Array& x, Inner f, Numbers n) {
  const Array whole = concatenate({rows(x), reshape(sin(x), {1, 4}), rows(x * 0.5)});  // [7, 4]
  const auto body = [&](const Array& c, const Array& t) {
    const Array next = tanh(f[0](c * 0.5 + t));
    return Pair(next, c * t);
  };
  const auto [a, as] = scan(body, x, whole, options(n[0], 1));
  const auto [b, bs] = scan(body, a, whole.slice(0, 1 + n[1], 4 + n[1]), options(n[2], 2));
  const auto [c, cs] = scan(body, x, flip(whole.slice(0, 4, 7), 0), options(n[0], 1));
  return b + c + (row(as, 5) - row(bs, 1)) * row(cs, 2);
}

// The second scan reads what the first stacked.
Array scan_of_stacked(const Array& x, Inner f, Numbers n) {
  const auto first = [&](const Array& c, const Array& t) {
    const Array next = tanh(f[0](c) + t);
    return Pair(next, next);
  };
  const auto second = [&](const Array& c, const Array& t) {
    const Array next = tanh(f[1](t) * c);
    return Pair(next, next - t);
  };
  const Array ys = scan(first, x, rows(x), options(n[0], 1)).second;
  const auto [carry, zs] = scan(second, cos(x), ys, options(n[1], n[2]));
  return carry + row(zs, 1);
}

// The counter chooses what an iteration does.
Array scan_branches(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Pair& c, const Array& t) {
    const auto& [a, i] = c;
    const Array y =
        n[2] ? cond(sum(a) > 0.1, f[0], f[1], a * 0.7 + t)
             : switch_(i % 3,
                       std::vector<Function>{f[0], f[1], [&](const Array& z) { return z * t + x; }},
                       a);
    return std::pair(Pair(tanh(y), i + 1), y * t);
  };
  const auto [c, ys] = scan(body, Pair(x, 0), rows(x), options(n[0], n[1]));
  return c.first + tanh(row(ys, 1) * row(ys, 2));
}

Array fori(const Array& x, Inner f, Numbers n) {
  const auto body = [&](const Array& i, const Array& c) { return f[0](c) * 0.5 + i * x * 0.3; };
  return fori_loop(0, n[0], body, x);
}

// An open loop counts where to read.
Array while_counts(const Array& x, Inner f, Numbers n) {
  const Array y = f[0](x);
  const auto below = [&](const Pair& c) { return (c.first < 3) & (sum(c.second) < 2.5); };
  const auto step = [&](const Pair& c) {
    return Pair(c.first + 1, c.second + stop_gradient(abs(x)));
  };
  const auto [i, total] = while_loop(below, step, Pair(n[0], stop_gradient(x)));
  return dynamic_slice(concatenate({y, x}), {i}, {4});
}

Array cond_of(const Array& x, Inner f, Numbers) {
  return cond(sum(x) > 0, f[0], f[1], x);
}
Array cond_of_batch(const Array& x, Inner f, Numbers n) {
  const auto one = [&](const Array& p, const Array& y) { return cond(p > 0, f[0], f[1], y * p); };
  const Array xs = stack({x, x * 2, x + 1, -x}, n[0]);
  return sum(vmap(one, {0, n[0]})(x, xs), 0) * 0.3;
}
Array switch_of_batch(const Array& x, Inner f, Numbers n) {
  const auto one = [&](const Array& i, const Array& y) {
    return switch_(i, std::vector<Function>{f[0], f[1], [&](const Array& z) { return z * x; }},
                   y + i);
  };
  const Array numbers = arange(5) - 1;
  if (n[0]) return sum(vmap(one, {0, std::nullopt})(numbers, x), 0) * 0.3;
  return sum(vmap(one, {0, 1}, 1)(numbers, outer(x, numbers * 0.3)), 1) * 0.3;
}

Array associative(const Array& x, Inner f, Numbers n) {
  const auto combine = [](const Pair& a, const Pair& b) {
    return Pair(a.first * b.first, a.second * b.first + b.second);
  };
  return associative_scan(combine, Pair(f[0](x), x), {.reverse = n[0] != 0}).second;
}
Array associative_matrices(const Array& x, Inner f, Numbers n) {
  const auto product = [](const Array& a, const Array& b) { return matmul(a, b); };
  const Array xs = stack({f[0](x), x, sin(x)}).reshape({3, 2, 2});
  return tanh(associative_scan(product, xs, {.reverse = n[0] != 0})[2 - n[0] * 2]).reshape({4});
}

}  // namespace

std::vector<FunctionKind> scan_functions() {
  return {
      {"scan", 1, {2, 4}, scan_rows},
      {"scan_numbers", 1, {2, 4}, scan_numbers},
      {"scan_nothing", 1, {2}, scan_nothing},
      {"map", 1, {2, 3}, map_over},
      {"scan_columns", 1, {2, 3, 2}, scan_columns},
      {"scan_in_blocks", 1, {4, 2, 3, 2}, scan_in_blocks},
      {"scan_twice", 1, {2, 2}, scan_twice},
      {"scan_tree", 1, {2, 3}, scan_tree},
      {"scan_crossed", 2, {2, 4}, scan_crossed},
      {"scan_buffer", 1, {2, 2, 3}, scan_buffer},
      {"scan_shifted", 1, {2, 3, 2}, scan_shifted},
      {"scan_parts", 1, {2, 3, 2}, scan_parts},
      {"scan_of_stacked", 2, {2, 2, 3}, scan_of_stacked},
      {"scan_branches", 2, {2, 3, 2}, scan_branches},
      {"fori", 1, {4}, fori},
      {"while_counts", 1, {3}, while_counts},
      {"cond", 2, {}, cond_of},
      {"cond_of_batch", 2, {2}, cond_of_batch},
      {"switch_of_batch", 2, {2}, switch_of_batch},
      {"associative", 1, {2}, associative},
      {"associative_matrices", 1, {2}, associative_matrices},
  };
}

}  // namespace stow::testing
