#include "stowage/runtime/cpu/kernels/row_patterns.h"

#include <limits>

#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"

namespace stow::cpu::rows {
namespace {

using Table = std::vector<RowPattern>;
using Types = RowPattern::Types;

// The gradient of silu(x), and with a factor y what else of SwiGLU the same program computes.
void add_gate_gradients(Table& table) {
  const Term x = each("x"), y = each("y"), dy = each("dy");
  const Term s = let("s", op(OpKind::kLogistic, {x})), silu = let("silu", x * s);
  const auto by_x = [&](const Term& d) { return d * s + (d * x) * (s * (1.0 - s)); };
  const Term d = let("d", dy * y);
  const auto kernel = [](int n_outs) { return [=] { return f32_gate_grad_kernel(n_outs); }; };
  table.push_back({.name = "gradient of silu(x) y by both, and silu(x) y",
                   .result = by_x(d),
                   .more = {dy * silu, silu * y},
                   .args = {x, y, dy},
                   .kernel = kernel(3),
                   .types = Types::kFloats,
                   .is_first = true});
  table.push_back({.name = "gradient of silu(x) y by both",
                   .result = by_x(d),
                   .more = {dy * silu},
                   .args = {x, y, dy},
                   .kernel = kernel(2),
                   .types = Types::kFloats,
                   .is_first = true});
  table.push_back({.name = "gradient of silu(x)",
                   .result = by_x(dy),
                   .args = {x, dy},
                   .kernel = kernel(1),
                   .types = Types::kFloats,
                   .is_first = true});
}

// hypot(a, b) as the public header writes it out: by the larger magnitude and the ratio of both. A
// magnitude that others read is computed before; that of a magnitude is itself.
void add_hypotenuses(Table& table) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto equal = [](const Term& a, const Term& b) { return op(OpKind::kEq, {a, b}); };
  for (const bool keeps_y : {false, true})
    for (const bool keeps_x : {false, true}) {
      const Term a = each("a"), b = each("b");
      const Term x = let("x", op(OpKind::kAbs, {a})), y = let("y", op(OpKind::kAbs, {b}));
      // Magnitudes are never -0.
      const Term most = let("most", op(OpKind::kMax, {x, y}));
      const Term least = in_either_order(op(OpKind::kMin, {x, y}));
      const Term r = let("r", least / op(OpKind::kSelect, {equal(most, 0.0), 1.0, most}));
      const Term finite = most * op(OpKind::kSqrt, {1.0 + r * r});
      const Term is_infinite = op(OpKind::kOr, {equal(x, kInfinity), equal(y, kInfinity)});
      table.push_back({.name = "hypotenuse",
                       .result = op(OpKind::kSelect, {is_infinite, kInfinity, finite}),
                       .args = {keeps_x ? x : a, keeps_y ? y : b},
                       .kernel = f32_hypot_kernel,
                       .is_first = true});
    }
}

// Adam: the moments m and v of a gradient g, their quotient, and what becomes of a weight p by it.
void add_moments(Table& table) {
  enum Weight { kNone, kMoves, kDecays };
  for (const bool is_scaled : {true, false})
    for (const Weight weight : {kDecays, kMoves, kNone})
      for (const bool subtracts : {false, true}) {
        if (weight == kNone && subtracts) continue;
        const Term g0 = each("g0"), m0 = each("m0"), v0 = each("v0"), p = each("p");
        const Term b1 = shared("b1"), c1 = shared("c1"), b2 = shared("b2"), c2 = shared("c2");
        const Term k1 = shared("k1"), k2 = shared("k2"), e = shared("e");
        const Term scale = shared("scale"), rate = shared("rate"), decay = shared("decay");
        const Term g = is_scaled ? let("g", g0 * scale) : each("g");
        const Term m = let("m", m0 * b1 + g * c1), v = let("v", v0 * b2 + (g * g) * c2);
        const Term r = (m * k1) / (op(OpKind::kSqrt, {v * k2}) + e);
        const Term change = (weight == kDecays ? r + p * decay : r) * rate;
        RowPattern row = {.name = weight == kNone ? "moments" : "Adam",
                          .result = weight == kNone ? r
                                    : subtracts     ? p - change
                                                    : p + change,
                          .more = {m, v},
                          .args = {is_scaled ? g0 : g, m0, v0},
                          .kernel =
                              [=] {
                                return f32_moments_kernel(is_scaled, weight != kNone,
                                                          weight == kDecays, subtracts);
                              },
                          .is_first = true};
        if (is_scaled) row.name += ", gradient scaled";
        if (weight == kDecays) row.name += ", decayed";
        if (subtracts) row.name += ", subtracted";
        if (weight != kNone) row.args.push_back(p);
        row.args.insert(row.args.end(), {b1, c1, b2, c2, k1, k2, e});
        if (is_scaled) row.args.push_back(scale);
        if (weight != kNone) row.args.push_back(rate);
        if (weight == kDecays) row.args.push_back(decay);
        table.push_back(std::move(row));
      }
}

// A comparison and the choice that it makes.
void add_choices(Table& table) {
  const Term a = any("a"), b = any("b"), yes = any("yes"), no = any("no");
  const Term i = any("i"), n = any("n"), shift = any("shift");
  table.push_back({.name = "index from the end",
                   .result = op(OpKind::kSelect, {op(OpKind::kLt, {i, n}), i + shift, i}),
                   .args = {i, n, shift, i},
                   .kernel = i32_wrap_kernel,
                   .types = Types::kI32,
                   .saves_scratch = true});
  struct Test {
    OpKind op, kernel;  // a > b is b < a, and what a != b chooses is what a == b does not.
  };
  constexpr Test kTests[] = {{OpKind::kLt, OpKind::kLt}, {OpKind::kLe, OpKind::kLe},
                             {OpKind::kEq, OpKind::kEq}, {OpKind::kGt, OpKind::kLt},
                             {OpKind::kGe, OpKind::kLe}, {OpKind::kNe, OpKind::kEq}};
  for (const Test& test : kTests)
    for (const Types types : {Types::kFloats, Types::kWordByI32}) {
      const bool turned = test.op == OpKind::kGt || test.op == OpKind::kGe;
      const bool negated = test.op == OpKind::kNe;
      const Term compared = op(test.op, {a, b});
      table.push_back(
          {.name = types == Types::kFloats ? "choice by floats" : "choice by i32",
           .result = op(OpKind::kSelect, {compared, yes, no}),
           .args = {turned ? b : a, turned ? a : b, negated ? no : yes, negated ? yes : no},
           .kernel =
               [=] {
                 return types == Types::kFloats ? f32_choose_kernel(test.kernel)
                                                : i32_choose_kernel(test.kernel);
               },
           .types = types,
           .saves_scratch = true});
    }
}

Table make_row_patterns() {
  Table table;
  add_gate_gradients(table);
  add_hypotenuses(table);
  add_moments(table);
  add_choices(table);
  const Term x = each("x"), y = any("y");
  const Term a = any("a"), b = any("b"), c = any("c"), d = any("d");
  const Term silu = x * op(OpKind::kLogistic, {x});
  table.push_back({.name = "silu(x) y",
                   .result = silu * y,
                   .args = {x, y},
                   .kernel = [] { return f32_gate_kernel(true); },
                   .types = Types::kFloats});
  table.push_back({.name = "silu(x)",
                   .result = silu,
                   .args = {x},
                   .kernel = [] { return f32_gate_kernel(false); },
                   .types = Types::kFloats});
  // The gradient of a square, added to what else is the gradient of a norm.
  const Term p = let("p", c * d);
  table.push_back({.name = "product and gradient of a square",
                   .result = a * b + (p + p),
                   .args = {a, b, c, d},
                   .kernel = [] { return f32_square_grad_kernel(OpKind::kMul); }});
  table.push_back({.name = "sum and gradient of a square",
                   .result = (a + b) + (p + p),
                   .args = {a, b, c, d},
                   .kernel = [] { return f32_square_grad_kernel(OpKind::kAdd); }});
  table.push_back({.name = "lower bound, then upper",
                   .result = op(OpKind::kMin, {op(OpKind::kMax, {a, b}), c}),
                   .args = {a, b, c},
                   .kernel = [] { return f32_clamp_kernel(OpKind::kMin); },
                   .saves_scratch = true});
  table.push_back({.name = "upper bound, then lower",
                   .result = op(OpKind::kMax, {op(OpKind::kMin, {a, b}), c}),
                   .args = {a, b, c},
                   .kernel = [] { return f32_clamp_kernel(OpKind::kMax); },
                   .saves_scratch = true});
  return table;
}

std::vector<SumPattern> make_sum_patterns() {
  const Term a = any("a"), b = any("b"), c = any("c");
  const Term exp = op(OpKind::kExp, {a - b}), difference = let("d", a - b),
             product = let("p", a * b);
  return {{.name = "exponentials of differences",
           .term = exp,
           .keeps = exp,
           .args = {a, b},
           .rows = &ReduceKernels::exps},
          {.name = "squares of differences",
           .term = difference * difference,
           .keeps = difference,
           .args = {a, b},
           .rows = &ReduceKernels::squares_of_differences},
          {.name = "products of three",
           .term = product * c,
           .keeps = product,
           .args = {a, b, c},
           .rows = &ReduceKernels::products_by_third},
          {.name = "products", .term = a * b, .args = {a, b}, .rows = &ReduceKernels::products},
          {.name = "products of three",
           .term = (a * b) * c,
           .args = {a, b, c},
           .columns = &ReduceKernels::column_products},
          {.name = "products",
           .term = a * b,
           .args = {a, b},
           .columns = &ReduceKernels::column_products}};
}

}  // namespace

const std::vector<RowPattern>& row_patterns() {
  static const std::vector<RowPattern> table = make_row_patterns();
  return table;
}

const std::vector<SumPattern>& sum_patterns() {
  static const std::vector<SumPattern> table = make_sum_patterns();
  return table;
}

}  // namespace stow::cpu::rows
