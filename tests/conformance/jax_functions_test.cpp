// Every function with a counterpart in JAX against it: values, gradients, special values, several
// dtypes. The cases are in tests/data/jax_functions.json, with the program that made them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "tests/support/source_path.h"
#include "tests/conformance/jax_cases.h"

namespace stow {
namespace {

using nlohmann::json;
using testing::Arrays;
using testing::Function;
using testing::load;
using testing::pair_of;
using testing::Table;

constexpr double kInf = std::numeric_limits<double>::infinity();

#define STOW_REDUCE(f)                                        \
  STOW_F(#f, f(x.at(0))), STOW_F(#f "_axis1", f(x.at(0), 1)), \
      STOW_F(#f "_keep", f(x.at(0), -1, KEEP))
#define STOW_RUNNING(f) STOW_F(#f, f(x.at(0), 1)), STOW_F(#f "_reverse", f(x.at(0), 1, true))

void add_elementwise(Table& t) {
  t.insert({
      STOW_1(exp),
      STOW_1(expm1),
      STOW_1(log),
      STOW_1(log1p),
      STOW_1(sqrt),
      STOW_1(cbrt),
      STOW_1(sin),
      STOW_1(cos),
      STOW_1(tan),
      STOW_1(sinh),
      STOW_1(cosh),
      STOW_1(tanh),
      STOW_1(exp2),
      STOW_1(log2),
      STOW_1(log10),
      STOW_1(abs),
      STOW_1(sign),
      STOW_1(floor),
      STOW_1(ceil),
      STOW_1(round),
      STOW_1(trunc),
      STOW_1(square),
      STOW_1(reciprocal),
      STOW_1(negative),
      STOW_1(isnan),
      STOW_1(isinf),
      STOW_1(isfinite),
      STOW_1(nan_to_num),
      STOW_1(logical_not),
      STOW_1(asin),
      STOW_1(acos),
      STOW_1(atan),
      STOW_1(asinh),
      STOW_1(acosh),
      STOW_1(atanh),
      STOW_1(rsqrt),
      STOW_1(erf),
      STOW_1(erfc),
      STOW_1(erf_inv),
      STOW_1(logistic),
      STOW_1(relu),
      STOW_1(relu6),
      STOW_1(elu),
      STOW_1(selu),
      STOW_1(celu),
      STOW_1(leaky_relu),
      STOW_1(hard_tanh),
      STOW_1(hard_sigmoid),
      STOW_1(hard_silu),
      STOW_1(silu),
      STOW_1(gelu),
      STOW_1(softplus),
      STOW_1(log_sigmoid),
      STOW_1(mish),
      STOW_1(soft_sign),
      STOW_1(squareplus),
      STOW_F("gelu_exact", gelu(x[0], false)),
      STOW_1(population_count),
      STOW_1(bitwise_count),
      STOW_1(clz),
      STOW_F("bitwise_not", ~x[0]),
      STOW_2(add),
      STOW_2(subtract),
      STOW_2(multiply),
      STOW_2(divide),
      STOW_2(maximum),
      STOW_2(minimum),
      STOW_2(remainder),
      STOW_2(fmod),
      STOW_2(floor_divide),
      STOW_2(atan2),
      STOW_2(hypot),
      STOW_2(logaddexp),
      STOW_F("power", pow(x[0], x[1])),
      STOW_2(div),
      STOW_2(rem),
      STOW_2(nextafter),
      STOW_F("equal", x[0] == x[1]),
      STOW_F("not_equal", x[0] != x[1]),
      STOW_F("less", x[0] < x[1]),
      STOW_F("less_equal", x[0] <= x[1]),
      STOW_F("greater", x[0] > x[1]),
      STOW_F("greater_equal", x[0] >= x[1]),
      STOW_2(isclose),
      STOW_F("bitwise_and", x[0] & x[1]),
      STOW_F("bitwise_or", x[0] | x[1]),
      STOW_F("bitwise_xor", x[0] ^ x[1]),
      STOW_F("left_shift", x[0] << x[1]),
      STOW_F("right_shift", x[0] >> x[1]),
      STOW_2(shift_right_logical),
      STOW_2(logical_and),
      STOW_2(logical_or),
      STOW_2(logical_xor),
      STOW_F("clip", clip(x[0], -0.5, 1.0)),
      STOW_F("clamp", clamp(-0.5, x[0], 1.0)),
      STOW_F("where", where(x[0], x[1], x[2])),
      STOW_F("integer_pow", integer_pow(x[0], 5)),
      STOW_F("integer_pow_minus3", integer_pow(x[0], -3)),
      STOW_F("log_of_maximum", log(maximum(x[0], x[1]))),
      STOW_F("softplus_slope", grad([](const Array& a) { return sum(softplus(a)); })(x[0])),
      STOW_F("digamma_slope", grad([](const Array& a) { return sum(digamma(a)); })(x[0])),
  });
}

void add_reductions(Table& t) {
#define KEEP true
  t.insert({STOW_REDUCE(sum), STOW_REDUCE(prod), STOW_REDUCE(max), STOW_REDUCE(min),
            STOW_REDUCE(mean), STOW_REDUCE(any), STOW_REDUCE(all), STOW_REDUCE(argmax),
            STOW_REDUCE(argmin), STOW_REDUCE(median), STOW_REDUCE(count_nonzero),
            STOW_REDUCE(logsumexp)});
#undef KEEP
#define KEEP 0, true
  t.insert({STOW_REDUCE(var)});
#undef KEEP
  t.insert({STOW_F("std", standard_deviation(x[0])),
            STOW_F("std_axis1", standard_deviation(x[0], 1)),
            STOW_F("std_keep", standard_deviation(x[0], -1, 0, true)),
            STOW_F("quantile", quantile(x[0], 0.3, 1)), STOW_F("var_ddof", var(x[0], 1, 1)),
            STOW_F("var_ddof3", var(x[0], 1, 3)),
            STOW_F("norm_0", norm(x[0], 1, 0)), STOW_F("norm_1", norm(x[0], 1, 1)),
            STOW_F("norm_2", norm(x[0], 1, 2)), STOW_F("norm_3", norm(x[0], 1, 3)),
            STOW_F("norm_inf", norm(x[0], 1, kInf)), STOW_F("norm_-inf", norm(x[0], 1, -kInf)),
            STOW_1(norm)});
}

void add_along_axis(Table& t) {
  t.insert({
      STOW_RUNNING(cumsum),
      STOW_RUNNING(cumprod),
      STOW_RUNNING(cummax),
      STOW_RUNNING(cummin),
      STOW_RUNNING(cumlogsumexp),
      STOW_F("jnp_cumsum", cumsum(x[0])),
      STOW_F("jnp_cumprod", cumprod(x[0], 0)),
      STOW_F("diff", diff(x[0], 1)),
      STOW_1(sort),
      STOW_F("sort_descending", sort(x[0], -1, true)),
      STOW_1(argsort),
      STOW_F("argsort_descending", argsort(x[0], -1, true)),
      {"top_k", [](const Arrays& x) { return pair_of(top_k(x[0], 3)); }},
      STOW_2(searchsorted),
      STOW_F("searchsorted_right", searchsorted(x[0], x[1], true)),
      STOW_F("linear_scan", linear_scan(x[0], x[1], 1)),
      {"associative_scan",
       [](const Arrays& x) -> Arrays {
         const auto step = [](const std::pair<Array, Array>& a, const std::pair<Array, Array>& b) {
           return std::pair(a.first * b.first, a.second * b.first + b.second);
         };
         return {associative_scan(step, std::pair(x[0], x[1]), {.axis = 1}).second};
       }},
      STOW_F("associative_scan_mul",
             associative_scan([](Array a, Array b) { return a * b; }, x[0], {.reverse = true})),
      STOW_F("associative_scan_max",
             associative_scan([](Array a, Array b) { return maximum(a, b); }, x[0], {.axis = 1})),
  });
}

void add_windows(Table& t) {
  const WindowOptions same{.strides = {1, 2, 2, 1}, .padding = "SAME"};
  const WindowOptions valid{.strides = {1, 2, 1, 1}};
  const WindowOptions odd{.strides = {2, 1},
                          .padding = {{1, -1}, {-2, 3}},
                          .base_dilation = {2, 1},
                          .window_dilation = {1, 2}};
  using Reduce = Array (*)(const Operand&, const Dims&, const WindowOptions&);
  for (const auto& [name, f] : {std::pair<const char*, Reduce>{"sum", reduce_window_sum},
                                {"max", reduce_window_max},
                                {"min", reduce_window_min}}) {
    const std::string prefix = fmt::format("window_{}", name);
    const auto add = [&, f = f](const std::string& suffix, const Dims& window,
                                const WindowOptions& options) {
      t[prefix + suffix] = [=](const Arrays& x) -> Arrays { return {f(x[0], window, options)}; };
    };
    add("", {1, 3, 2, 1}, same);
    add("_valid", {1, 3, 2, 1}, valid);
    add("_odd", {2, 3}, odd);
    add("_1d", {3}, {.strides = {2}, .padding = "SAME"});
  }
  t.insert({STOW_F("avg_pool", avg_pool(x[0], {2, 2}, {2, 2}, "SAME"))});
}

void add_convolutions(Table& t) {
  const auto add = [&](const std::string& name, const ConvOptions& options) {
    t[name] = [options](const Arrays& x) -> Arrays {
      return {conv_general_dilated(x[0], x[1], options)};
    };
  };
  add("conv_plain", {});
  add("conv_same", {.strides = {2, 2}, .padding = "SAME"});
  add("conv_same_lower", {.strides = {2, 1}, .padding = "SAME_LOWER"});
  add("conv_dilated", {.strides = {2, 1},
                       .padding = {{2, -1}, {-1, 3}},
                       .lhs_dilation = {2, 1},
                       .rhs_dilation = {1, 2}});
  add("conv_groups", {.padding = "SAME", .feature_groups = 2});
  add("conv_batch_groups", {.padding = "SAME", .batch_groups = 2});
  add("conv_nhwc", {.strides = {1, 2},
                    .padding = "SAME",
                    .lhs_axes = "NHWC",
                    .rhs_axes = "HWIO",
                    .out_axes = "NHWC"});
  add("conv_hwcn", {.lhs_axes = "HWCN", .rhs_axes = "OIWH", .out_axes = "NWHC"});
  for (const char* rule : {"SAME", "VALID"})
    t[fmt::format("conv_transpose_{}", rule)] = [rule](const Arrays& x) -> Arrays {
      const ConvOptions options{
          .padding = rule, .lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"};
      return {conv_transpose(x[0], x[1], {2, 3}, options)};
    };
  for (const char* mode : {"full", "same", "valid"})
    t[fmt::format("convolve_{}", mode)] = [mode](const Arrays& x) -> Arrays {
      return {convolve(x[0], x[1], mode)};
    };
}

void add_shapes(Table& t) {
  t.insert({
      {"split3", [](const Arrays& x) { return array_split(x[0], 3, 1); }},
      {"unstack", [](const Arrays& x) { return unstack(x[0], 1); }},
      STOW_F("hstack", hstack({x[0], x[1]})),
      STOW_F("vstack", vstack({x[0], x[1]})),
      STOW_F("tile", tile(x[0], {2, 1, 3})),
      STOW_F("repeat", repeat(x[0], 3, 1)),
      STOW_F("roll", roll(x[0], 5, 2)),
      STOW_F("flip", flip(x[0], {0, 2})),
      STOW_F("moveaxis", moveaxis(x[0], 0, -1)),
      STOW_F("swapaxes", swapaxes(x[0], 0, 2)),
      STOW_F("squeeze", squeeze(x[0].index({newaxis, all_of_axis, range(0, 1)}))),
      STOW_F("expand_dims", expand_dims(x[0], {0, 2})),
      STOW_F("tril", tril(x[0], 1)),
      STOW_F("triu", triu(x[0], -1)),
      STOW_F("tri", x[0] * tri(3, 4, -1)),
      STOW_F("linspace", x[0] + linspace(-1, 2.7, 7)),
      STOW_F("linspace_open", x[0] + linspace(3, -1, 6, false)),
      {"meshgrid", [](const Arrays& x) { return meshgrid(x); }},
      {"meshgrid_ij", [](const Arrays& x) { return meshgrid(x, true); }},
      STOW_F("one_hot", one_hot(x[0], 4)),
      STOW_F("eye", x[0] * eye(3, 4)),
  });
  for (const int k : {-1, 0, 2}) {
    t[fmt::format("diag_{}", k)] = [k](const Arrays& x) -> Arrays { return {diag(x[0], k)}; };
    t[fmt::format("diagonal_{}", k)] = [k](const Arrays& x) -> Arrays {
      return {diagonal(x[0], k, 1, 2)};
    };
    t[fmt::format("trace_{}", k)] = [k](const Arrays& x) -> Arrays {
      return {trace(x[0], k, 1, 2)};
    };
  }
}

// The places of at(...) by their names in the cases: x, then two arrays of indices.
AtIndex place(const std::string& name, const Arrays& x) {
  const Array &a = x[0], &i = x[1], &j = x[2];
  if (name == "all") return a.at({ellipsis});
  if (name == "one") return a.at({1, 2, -1});
  if (name == "slice") return a.at({Range{1, {}}, Range{{}, 2}});
  if (name == "strided") return a.at({all_of_axis, Range{{}, {}, 2}, Range{{}, {}, -2}});
  if (name == "rows") return a.at({all_of_axis, i});
  if (name == "apart") return a.at({i, all_of_axis, j});
  if (name == "integer") return a.at({1, all_of_axis, i});
  return a.at({Range{{}, {}, -1}, i, range(1, 3)});
}

void add_indexing(Table& t) {
  for (const auto& [name, mode] : {std::pair{"fill", IndexMode::kFill},
                                   {"clip", IndexMode::kClip},
                                   {"wrap", IndexMode::kWrap}}) {
    t[fmt::format("take_{}", name)] = [mode = mode](const Arrays& x) -> Arrays {
      return {take(x[0], x[1], 1, mode)};
    };
    t[fmt::format("take_along_{}", name)] = [mode = mode](const Arrays& x) -> Arrays {
      return {take_along_axis(x[0], x[1], 1, mode)};
    };
  }
  t.insert({
      STOW_F("take_flat", take_flat(x[0], x[1])),
      STOW_F("index_rows", x[0].index({x[1]})),
      STOW_F("index_columns", x[0].index({all_of_axis, x[1]})),
      STOW_F("index_both", x[0].index({all_of_axis, x[1], x[2]})),
      STOW_F("index_apart", x[0].index({x[1], all_of_axis, x[2]})),
      STOW_F("index_integer", x[0].index({1, all_of_axis, x[1]})),
      STOW_F("index_between", x[0].index({ellipsis, newaxis, x[1]})),
      STOW_F("index_sliced", x[0].index({Range{{}, {}, -1}, x[1], range(1, 3)})),
      STOW_F("index_front", x[0].index({x[1], newaxis, x[2]})),
      STOW_F("get_fill", x[0].at({all_of_axis, x[1]}).get(IndexMode::kFill)),
  });
  for (const char* where :
       {"all", "one", "slice", "strided", "rows", "apart", "integer", "sliced"}) {
    using Update = Array (AtIndex::*)(const Operand&, IndexMode) const;
    for (const auto& [op, update] : {std::pair<const char*, Update>{"set", &AtIndex::set},
                                     {"add", &AtIndex::add},
                                     {"subtract", &AtIndex::subtract},
                                     {"multiply", &AtIndex::multiply},
                                     {"divide", &AtIndex::divide},
                                     {"min", &AtIndex::min},
                                     {"max", &AtIndex::max}})
      t[fmt::format("at_{}_{}", where, op)] = [where, update = update](const Arrays& x) -> Arrays {
        return {(place(where, x).*update)(x[3], IndexMode::kFill)};
      };
  }
}

// Dimension numbers of gather and scatter, and slice sizes.
struct Windows {
  const char* name;
  GatherDimensionNumbers numbers;
  Dims sizes;
};

void add_general_indexing(Table& t) {
  const Windows forms[] = {{"windows", {{0, 2}, {1}, {1, 2}}, {2, 1, 2}},
                           {"batching", {{1, 3}, {}, {2}, {0}, {1}}, {1, 3, 2}},
                           {"turned", {{}, {1}, {1}, {0, 2}, {2, 0}}, {1, 1, 1}}};
  using Scatter = Array (*)(const Operand&, const Operand&, const Operand&,
                            const ScatterDimensionNumbers&, GatherScatterMode);
  using enum GatherScatterMode;
  for (const Windows& w : forms) {
    const ScatterDimensionNumbers s{w.numbers.offset_dims, w.numbers.collapsed_slice_dims,
                                    w.numbers.start_index_map, w.numbers.operand_batching_dims,
                                    w.numbers.start_indices_batching_dims};
    for (const auto& [name, mode] : {std::pair{"fill", kFillOrDrop},
                                     {"drop", kFillOrDrop},
                                     {"clip", kClip},
                                     {"promise_in_bounds", kPromiseInBounds}}) {
      t[fmt::format("gather_{}_{}", w.name, name)] = [w, mode = mode](const Arrays& x) -> Arrays {
        return {gather(x[0], x[1], w.numbers, w.sizes, mode)};
      };
      for (const auto& [op, scatter] :
           {std::pair<const char*, Scatter>{"scatter", &stow::scatter},
            {"scatter_add", &scatter_add},
            {"scatter_sub", &scatter_sub},
            {"scatter_mul", &scatter_mul},
            {"scatter_min", &scatter_min},
            {"scatter_max", &scatter_max}})
        t[fmt::format("{}_{}_{}", op, w.name, name)] = [s, scatter = scatter,
                                                        mode = mode](const Arrays& x) -> Arrays {
          return {scatter(x[0], x[1], x[2], s, mode)};
        };
    }
    t[fmt::format("gather_{}_seven", w.name)] = [w](const Arrays& x) -> Arrays {
      return {gather(x[0], x[1], w.numbers, w.sizes, kFillOrDrop, 7)};
    };
  }
}

void add_products(Table& t) {
  t.insert({
      STOW_F("tensordot", tensordot(x[0], x[1], 2)),
      STOW_F("tensordot_axes", tensordot(x[0], x[1], Dims{0, 2}, Dims{1, 0})),
      STOW_2(inner),
      STOW_2(vdot),
      STOW_2(outer),
      STOW_2(kron),
      STOW_2(matmul),
      STOW_F("matmul_i32", matmul(x[0], x[1], DType::kI32)),
      STOW_1(softmax),
      STOW_1(log_softmax),
      STOW_F("softmax_axis0", softmax(x[0], 0)),
      STOW_1(glu),
      STOW_1(standardize),
      STOW_F("attention_causal", attention(x[0], x[1], x[2], {.causal = true})),
      STOW_F("attention_bias", attention(x[0], x[1], x[2], {.bias = x[3]})),
      STOW_F("attention_mask", attention(x[0], x[1], x[2], {.causal = true, .mask = x[3]})),
  });
}

void add_einsum_and_linspace(Table& t) {
  for (const char* spec :
       {"ij,jk->ik", "ij,kj->", "ij,ij->i", "ii,jk->ik", "ij->i", "ii->i", "ii->"})
    t[fmt::format("einsum_{}", spec)] = [spec](const Arrays& x) -> Arrays {
      return {einsum(spec, x)};
    };
  struct Line {
    const char* name;
    double start, stop;
    int64_t n;
    bool endpoint = true;
  };
  for (const DType dtype :
       {DType::kI8, DType::kU8, DType::kI32, DType::kU32, DType::kI64, DType::kBool})
    for (const Line& l : {Line{"up", 0, 10, 4}, Line{"down", 2.5, -3.75, 9},
                          Line{"far", -5, 300, 4}, Line{"one", 2.7, 5, 1},
                          Line{"open", -3, 4, 5, false}})
      t[fmt::format("linspace_{}_{}", dtype_name(dtype), l.name)] =
          [l, dtype](const Arrays&) -> Arrays {
        return {linspace(l.start, l.stop, l.n, l.endpoint, dtype)};
      };
}

void add_random(Table& t) {
  using namespace random;  // NOLINT: the functions under test
  const auto key = [] { return random::key(0x0123456789abcdef); };
#define STOW_R(name, ...)                                                                     \
  {                                                                                           \
    "random_" name, [key](const Arrays& x) -> Arrays { return (void)x, Arrays{__VA_ARGS__}; } \
  }
  t.insert({
      STOW_R("randint", randint(key(), {9}, -5, 17)),
      STOW_R("randint_all", randint(key(), {5}, -(int64_t{1} << 31), (int64_t{1} << 31) - 1)),
      STOW_R("randint_empty", randint(key(), {5}, 7, 7)),
      STOW_R("randint_u8", randint(key(), {9}, 0, 256, DType::kU8)),
      STOW_R("randint_i8", randint(key(), {9}, -200, 100, DType::kI8)),
      STOW_R("randint_u32", randint(key(), {9}, 5, 4000000000, DType::kU32)),
      STOW_R("randint_i64", randint(key(), {9}, -1000000000000, 1000000000000000, DType::kI64)),
      STOW_R("randint_bounds_row", randint(key(), {3, 4}, x[0], x[1])),
      STOW_R("randint_bounds_scalar", randint(key(), {3, 4}, x[0], x[1])),
      STOW_R("randint_bounds_u8", randint(key(), {3, 4}, x[0], x[1], DType::kU8)),
      STOW_R("randint_bounds_i64", randint(key(), {2, 3}, x[0], x[1], DType::kI64)),
      STOW_R("truncated_normal", truncated_normal(key(), -1, 2.5, {40})),
      STOW_R("exponential", exponential(key(), {9})),
      STOW_R("laplace", laplace(key(), {9})),
      STOW_R("logistic", random::logistic(key(), {9})),
      STOW_R("cauchy", cauchy(key(), {9})),
      STOW_R("cauchy_f16", cauchy(key(), {60}, DType::kF16)),
      STOW_R("cauchy_bf16", cauchy(key(), {60}, DType::kBF16)),
      STOW_R("cauchy_f32", cauchy(key(), {60})),
      STOW_R("rademacher", rademacher(key(), {9})),
      STOW_R("permutation", permutation(key(), 20)),
      STOW_R("permutation_rows", permutation(key(), x[0], 1)),
      STOW_R("permutation_independent", permutation(key(), x[0], 1, true)),
      STOW_R("choice", choice(key(), 10, {7})),
      STOW_R("choice_distinct", choice(key(), 10, {2, 3}, {.replace = false})),
      STOW_R("choice_rows", choice(key(), x[0], {5}, {.axis = 1})),
      STOW_R("choice_weighted", choice(key(), 4, {9}, {.p = x[0]})),
      STOW_R("choice_weighted_distinct", choice(key(), 4, {3}, {.replace = false, .p = x[0]})),
      STOW_R("categorical_shape", categorical(key(), x[0], 0, Shape{4, 3, 4})),
      STOW_R("bernoulli_p", bernoulli(key(), x[0])),
  });
}

void add_special(Table& t) {
  t.insert({STOW_1(lgamma), STOW_1(digamma), STOW_1(signbit), STOW_2(copysign), STOW_1(log1mexp)});
  for (const auto& [name, mode] : {std::pair<const char*, PadMode>{"edge", PadMode::kEdge},
                                   {"reflect", PadMode::kReflect},
                                   {"symmetric", PadMode::kSymmetric},
                                   {"wrap", PadMode::kWrap},
                                   {"linear_ramp", PadMode::kLinearRamp}})
    for (const auto& [n, widths] :
         {std::pair<const char*, std::vector<PadWidth>>{"a", {{2, 1}, {0, 3}}},
          {"b", {{7, 9}, {5, 4}}},
          {"c", {{0, 0}, {1, 0}}},
          {"one", {{2, 3}}}})
      t[fmt::format("pad_{}_{}", name, n)] = [mode = mode, widths = widths](const Arrays& x) {
        return Arrays{pad(x[0], widths, mode)};
      };
}

void add_distribution_functions(Table& t) {
  t.insert({STOW_2(igamma), STOW_2(igammac), STOW_2(random_gamma_grad), STOW_2(zeta),
            STOW_2(betaln), STOW_2(xlogy), STOW_2(xlog1py), STOW_2(rel_entr), STOW_2(kl_div),
            STOW_1(bessel_i0e), STOW_1(bessel_i1e), STOW_1(ndtr), STOW_1(log_ndtr), STOW_1(ndtri),
            STOW_1(logit), STOW_1(entr), STOW_F("betainc", betainc(2.5, 0.5, x[0])),
            STOW_F("betainc_of", betainc(x[0], x[1], x[2]))});
  for (const int n : {0, 1, 2, 5})
    t[fmt::format("polygamma_{}", n)] = [n](const Arrays& x) { return Arrays{polygamma(n, x[0])}; };
}

void add_counting(Table& t) {
  for (const int64_t size : {3, 12}) {
    t[fmt::format("nonzero_{}", size)] = [size](const Arrays& x) {
      return nonzero(x[0], size, -1);
    };
    t[fmt::format("flatnonzero_{}", size)] = [size](const Arrays& x) {
      return Arrays{flatnonzero(x[0], size)};
    };
    t[fmt::format("argwhere_{}", size)] = [size](const Arrays& x) {
      return Arrays{argwhere(x[0], size, 7)};
    };
  }
#define STOW_NAN(f) STOW_F(#f, f(x[0])), STOW_F(#f "_axis1", f(x[0], 1))
  t.insert({STOW_F("compress", compress(x[0], x[1], 3, 1, 2)),
            STOW_F("compress_all", compress(x[0], x[1], 2)),
            STOW_F("bincount", bincount(x[0], 6)),
            STOW_F("bincount_weights", bincount(x[0], 5, x[1])), STOW_NAN(nansum),
            STOW_NAN(nanprod), STOW_NAN(nanmax), STOW_NAN(nanmin), STOW_NAN(nanmean),
            STOW_1(ptp), STOW_F("ptp_axis1", ptp(x[0], 1)),
            STOW_F("average_axis0", average(x[0], x[1], 0)),
            STOW_F("average_axes20", average(x[0], x[1], {2, 0})),
            STOW_F("average", average(x[0], x[1], 1)),
            STOW_F("percentile", percentile(x[0], 30, 1)),
            STOW_F("at_one_power", x[0].at({1}).power(x[1])),
            STOW_F("at_slice_power", x[0].at({all_of_axis, range(1, 3)}).power(x[1])),
            STOW_F("at_rows_power", x[0].at({x[1]}).power(x[2]))});
}

// A first value, as JAX is given it: a bool of bools.
Operand first(const Array& x, int value) {
  return x.dtype() == DType::kBool ? Operand(value > 0) : Operand(value);
}

// Reductions with options, and orders by several keys.
void add_parts(Table& t) {
#define STOW_WHERE(f)                               \
  STOW_F(#f "_where", f(x[0], 1, {.where = x[1]})), \
      STOW_F(#f "_where_all", f(x[0], {}, {.keepdims = true, .where = x[1]}))
#define STOW_INITIAL(f)                                             \
  STOW_F(#f "_initial", f(x[0], 0, {.initial = first(x[0], 1)})),   \
      STOW_F(#f "_where_initial",                                   \
             f(x[0], 1, {.where = x[1], .initial = first(x[0], -2)}))
#define STOW_F16(f) STOW_F(#f "_f16", f(astype(x[0], DType::kF32), 1, {.dtype = DType::kF16}))
#define STOW_NANS(f) STOW_F(#f, f(x[0])), STOW_F(#f "_axis1", f(x[0], 1))
  t.insert({STOW_WHERE(sum), STOW_WHERE(prod), STOW_WHERE(mean), STOW_WHERE(any), STOW_WHERE(all),
            STOW_INITIAL(sum), STOW_INITIAL(prod), STOW_INITIAL(max), STOW_INITIAL(min),
            STOW_F16(sum), STOW_F16(prod), STOW_F16(mean),
            STOW_F("var_f16", var(astype(x[0], DType::kF32), 1, 0, {.dtype = DType::kF16})),
            STOW_F("var_where", var(x[0], 1, 1, {.where = x[1]})),
            STOW_F("std_where", standard_deviation(x[0], 1, 1, {.where = x[1]})),
            STOW_F("max_where_huge", max(x[0], 1, {.where = x[1], .initial = x[0][1][0]})),
            STOW_F("min_where_huge", min(x[0], 1, {.where = x[1], .initial = x[0][1][0]})),
            STOW_F("mean_in_f64", mean(x[0], 0, {.dtype = DType::kF64})),
            STOW_F("var_in_f64", var(x[0], 0, 0, {.dtype = DType::kF64})),
            STOW_F("nanvar_ddof1", nanvar(x[0], 0, 1)), STOW_F("nanvar_ddof4", nanvar(x[0], 0, 4)),
            STOW_F("sum_bool", sum(x[0], 1, {.dtype = DType::kBool})),
            STOW_F("softmax_where", softmax(x[0], -1, x[1])),
            STOW_F("log_softmax_where", log_softmax(x[0], -1, x[1])),
            STOW_F("logsumexp_where", logsumexp(x[0], 1, {.where = x[1]})),
            STOW_F("logsumexp_b", logsumexp(x[0], 1, {}, x[1])),
            STOW_F("lexsort", lexsort({x[1], x[0]})),
            STOW_NANS(nanvar), STOW_NANS(nanstd), STOW_NANS(nanmedian),
            STOW_F("nanquantile", nanquantile(x[0], 0.3, 0))});
  for (const int n : {-1, 0, 1, 2, 3, 4}) {
    t[fmt::format("round_{}", n)] = [n](const Arrays& x) { return Arrays{round(x[0], n)}; };
    t[fmt::format("diff_{}", n)] = [n](const Arrays& x) { return Arrays{diff(x[0], -1, n)}; };
    t[fmt::format("sort_by_{}", n)] = [n](const Arrays& x) { return sort(x, 1, n); };
    t[fmt::format("sort_along0_by_{}", n)] = [n](const Arrays& x) { return sort(x, 0, n); };
  }
}

void add_derivatives(Table& t) {
  const auto soft = custom_jvp(
      [](const Array& x, const Array& w) { return log1p(exp(x)) * w; },
      [](const auto& primals, const auto& tangents) {
        const auto& [x, w] = primals;
        const auto& [dx, dw] = tangents;
        return std::pair(log1p(exp(x)) * w, 3 * w * sigmoid(x) * dx - sin(w) * dw);
      });
  const auto run = [soft](const Array& c, const Array& x, const Array& w) {
    return scan([&](const Array& a, const Array& b) { return std::pair(soft(a + b, w), a); }, c, x)
        .second;
  };
  const auto sum_of = [soft](const Array& w) {
    return [soft, w](const Array& x) { return sum(soft(x, w)); };
  };
  const auto f = [](const Array& a) { return outer(sin(a), a); };
  t["custom_jvp"] = [=](const Arrays& x) { return Arrays{soft(x[0], x[1])}; };
  t["custom_jvp_scan"] = [=](const Arrays& x) { return Arrays{run(x[0], x[1], x[2])}; };
  t["custom_jvp_jvp"] = [=](const Arrays& x) {
    return Arrays{jvp(soft, std::tuple(x[0], x[1]), std::tuple(x[2], x[1])).second};
  };
  t["custom_jvp_hessian"] = [=](const Arrays& x) { return Arrays{hessian(sum_of(x[1]))(x[0])}; };
  t["linearize"] = [=](const Arrays& x) { return Arrays{linearize(f, x[0]).second(x[1])}; };
  t["linear_transpose"] = [](const Arrays& x) {
    const auto times = [&](const Array& a) { return cumsum(a, 0) * x[0]; };
    return Arrays{std::get<0>(linear_transpose(times, x[0])(x[1]))};
  };
  t["hessian"] = [](const Arrays& x) {
    return Arrays{hessian([](const Array& a) { return outer(sin(a), a * a); })(x[0])};
  };
}

void add_distributions(Table& table) {
  using namespace random;  // NOLINT: the functions under test
  const auto key = [] { return random::key(0x0123456789abcdef); };
  table.insert({
      STOW_R("gamma", gamma(key(), x[0])),
      STOW_R("gamma_many", gamma(key(), 0.7, Shape{3, 200})),
      STOW_R("gamma_large", gamma(key(), 2.5, Shape{500})),
      STOW_R("gamma_f64", gamma(key(), 1.3, Shape{50}, DType::kF64)),
      STOW_R("gamma_of_f64", gamma(key(), x[0], {}, DType::kF64)),
      STOW_R("loggamma", loggamma(key(), x[0])),
      STOW_R("loggamma_small", loggamma(key(), 1e-3, Shape{40})),
      STOW_R("beta", beta(key(), x[0], 2.0)),
      STOW_R("beta_shape", beta(key(), x[0], flip(x[0]), Shape{3, 8})),
      STOW_R("dirichlet", dirichlet(key(), x[0], Shape{4})),
      STOW_R("t", t(key(), 3.5, Shape{40})),
      STOW_R("t_of", t(key(), x[0])),
      STOW_R("chisquare", chisquare(key(), x[0])),
      STOW_R("f", f(key(), x[0], 4.0)),
      STOW_R("generalized_normal", generalized_normal(key(), 1.5, {40})),
      STOW_R("ball", ball(key(), 3, 2, {7})),
      STOW_R("ball_l1", ball(key(), 4, 1, {2, 3})),
      STOW_R("pareto", pareto(key(), x[0], Shape{2, 8})),
      STOW_R("rayleigh", rayleigh(key(), x[0])),
      STOW_R("weibull_min", weibull_min(key(), 2.0, 1.5, Shape{40})),
      STOW_R("lognormal", lognormal(key(), 0.5, Shape{40})),
      STOW_R("wald", wald(key(), x[0])),
      STOW_R("triangular", triangular(key(), -1.0, 0.5, 2.0, Shape{40})),
      STOW_R("maxwell", maxwell(key(), {3, 8})),
      STOW_R("double_sided_maxwell", double_sided_maxwell(key(), x[0], 2.0, {2})),
      STOW_R("double_sided_maxwell_own", double_sided_maxwell(key(), x[0], 2.0)),
      STOW_R("poisson", poisson(key(), x[0])),
      STOW_R("poisson_few", poisson(key(), 4.0, Shape{300})),
      STOW_R("poisson_many", poisson(key(), 30.0, Shape{5, 60})),
      STOW_R("poisson_u8", poisson(key(), 2.0, Shape{20}, DType::kU8)),
      STOW_R("binomial_few", binomial(key(), 12.0, 0.4, Shape{300})),
      STOW_R("binomial_many", binomial(key(), 100.0, 0.3, Shape{300})),
      STOW_R("binomial_odd", binomial(key(), x[0], 0.4)),
      STOW_R("multinomial", multinomial(key(), 60.0, x[0])),
      STOW_R("categorical_apart", categorical(key(), x[0], 0, Shape{2, 3}, false)),
      STOW_R("geometric", geometric(key(), x[0], Shape{4, 3})),
  });
  for (const int n : {0, 7, 90, 5000})
    table[fmt::format("random_binomial_{}", n)] = [=](const Arrays& x) {
      return Arrays{binomial(key(), n, x[0])};
    };
}

Arrays all_of(const Unique& u) {
  return {u.values, u.indices, u.inverse, u.counts};
}

void add_editing(Table& t) {
#define STOW_PAIR(name, ...)                                            \
  {                                                                     \
    name, [](const Arrays& x) -> Arrays { return pair_of(__VA_ARGS__); } \
  }
  const auto twice_and_one = [](const Array& v) { return v * 2 + 1; };
  t["at_apply_rows"] = [=](const Arrays& x) {
    return Arrays{x[0].at({x[1]}).apply(twice_and_one)};
  };
  t["scatter_apply"] = [=](const Arrays& x) {
    return Arrays{
        scatter_apply(x[0], expand_dims(x[1], 1), twice_and_one, {{1}, {0}, {0}}, {5, 3})};
  };
  t.insert({STOW_F("at_apply_clip", x[0].at({x[1]}).apply([](const Array& v) { return square(v); },
                                                          IndexMode::kClip)),
            STOW_F("at_apply_slice",
                   x[0].at({1, Range{{}, {}, 2}}).apply([](const Array& v) { return sin(v); })),
            STOW_F("at_get_fill", x[0].at({x[1]}).get(IndexMode::kFill, 7)),
            STOW_F("take_fill_value", take(x[0], x[1], 1, IndexMode::kFill, -2)),
            STOW_F("take_along_axis_fill",
                   take_along_axis(x[0], expand_dims(x[1], 0), 1, IndexMode::kFill, -2)),
            STOW_F("insert_flat", insert(x[0], 2, x[1])),
            STOW_F("insert_one", insert(x[0], -1, x[1], 1)),
            STOW_F("insert_several", insert(x[0], {2, 0, 2, -3}, x[1], 1)),
            STOW_F("insert_scalar", insert(x[0], {1, 1}, 5, 0)),
            STOW_F("insert_list_of_one", insert(x[0], Dims{1}, x[1], 1)),
            STOW_F("insert_rows", insert(x[0], 1, x[1], 0)),
            STOW_F("delete_one", delete_(x[0], {-1}, 1)),
            STOW_F("delete_several", delete_(x[0], {0, 3, -1, 0}, 0)),
            STOW_F("delete_flat", delete_(x[0], {1, 2})),
            STOW_F("resize_more", resize(x[0], {3, 4})),
            STOW_F("resize_less", resize(x[0], {2, 2})),
            STOW_F("resize_nothing", resize(x[0], {2, 2})),
            STOW_F("pad_ramp_to",
                   pad(x[0], {{2, 1}, {0, 3}}, PadMode::kLinearRamp, {.end_value = -1.5})),
            STOW_PAIR("histogram", histogram(x[0], 5)),
            STOW_PAIR("histogram_range",
                      histogram(x[0], 4, {.range = std::pair(0, 1), .weights = x[1]})),
            STOW_PAIR("histogram_density", histogram(x[0], 4, {.density = true})),
            STOW_PAIR("histogram_edges", histogram(x[0], x[1])),
            STOW_2(digitize),
            STOW_F("digitize_right", digitize(x[0], x[1], true)),
            STOW_F("interp", interp(x[0], x[1], x[2])),
            STOW_F("interp_beyond", interp(x[0], x[1], x[2], -7, 9)),
            STOW_2(isin),
            STOW_F("isin_not", isin(x[0], x[1], true))});
  for (const auto& [name, mode] : {std::pair{"clip", IndexMode::kClip},
                                   {"drop", IndexMode::kFill}}) {
    const IndexMode m = mode;
    t[fmt::format("at_set_{}", name)] = [m](const Arrays& x) {
      return Arrays{x[0].at({x[1]}).set(x[2], m)};
    };
    t[fmt::format("at_add_{}", name)] = [m](const Arrays& x) {
      return Arrays{x[0].at({x[1]}).add(x[2], m)};
    };
    t[fmt::format("at_max_{}", name)] = [m](const Arrays& x) {
      return Arrays{x[0].at({x[1]}).max(x[2], m)};
    };
    t[fmt::format("at_multiply_{}", name)] = [m](const Arrays& x) {
      return Arrays{x[0].at({x[1]}).multiply(x[2], m)};
    };
  }
  for (const auto& [name, mode] : {std::pair{"maximum", PadMode::kMaximum},
                                   {"minimum", PadMode::kMinimum},
                                   {"mean", PadMode::kMean},
                                   {"median", PadMode::kMedian}}) {
    const PadMode m = mode;
    t[fmt::format("pad_{}_a", name)] = [m](const Arrays& x) {
      return Arrays{pad(x[0], {{2, 1}, {0, 3}}, m)};
    };
    t[fmt::format("pad_{}_b", name)] = [m](const Arrays& x) {
      return Arrays{pad(x[0], {{1, 2}, {2, 4}}, m, {.stat_length = 2})};
    };
    t[fmt::format("pad_{}_c", name)] = [m](const Arrays& x) {
      return Arrays{pad(x[0], {{0, 1}, {2, 0}}, m, {.stat_length = 9})};
    };
  }
  for (const auto& [e, m] : {std::pair{5, 10}, {8, 7}, {4, 3}, {8, 23}, {2, 0}})
    t[fmt::format("reduce_precision_{}_{}", e, m)] = [e = e, m = m](const Arrays& x) {
      return Arrays{reduce_precision(x[0], e, m)};
    };
  for (const int64_t size : {2, 9}) {
    t[fmt::format("unique_{}", size)] = [size](const Arrays& x) {
      return all_of(unique(x[0], size));
    };
    t[fmt::format("unique_{}_fill", size)] = [size](const Arrays& x) {
      return Arrays{unique(x[0], size, -1).values};
    };
  }
}

const Table& functions() {
  static const Table table = [] {
    Table t;
    add_elementwise(t);
    add_reductions(t);
    add_along_axis(t);
    add_windows(t);
    add_convolutions(t);
    add_shapes(t);
    add_indexing(t);
    add_general_indexing(t);
    add_products(t);
    add_einsum_and_linspace(t);
    add_random(t);
    add_special(t);
    add_distribution_functions(t);
    add_counting(t);
    add_parts(t);
    add_derivatives(t);
    add_editing(t);
    add_distributions(t);
    testing::add_names(t);
    return t;
  }();
  return table;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0;
  }
}

// The numbers that differ by more than `ulp` roundings, the first few of them.
std::string differences(const Array& got, const json& want, double ulp, double scale) {
  const Array expected = load(want);
  if (to_string(got.type()) != to_string(expected.type()))
    return fmt::format("is {}, JAX {}", to_string(got.type()), to_string(expected.type()));
  if (want["dtype"] == "u64" || want["dtype"] == "i64")
    return got.to_vector<int64_t>() == expected.to_vector<int64_t>() ? "" : "differs";
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  const double unit = epsilon(expected.dtype());
  const double tiny =
      expected.dtype() == DType::kF64 ? 0 : double{std::numeric_limits<float>::min()};
  std::string text;
  int n = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = a[i] == b[i] && (a[i] != 0 || ulp > 0 || std::signbit(a[i]) == std::signbit(b[i]));
    if (std::isnan(b[i]) || std::isnan(a[i])) same = std::isnan(a[i]) && std::isnan(b[i]);
    // XLA's code for CPUs takes numbers below the normal ones for zero.
    if (!same && b[i] == 0 && ulp > 0) same = std::fabs(a[i]) < tiny;
    if (!same && std::isfinite(b[i]) && std::isfinite(a[i]))
      same = ulp > 0 && std::fabs(a[i] - b[i]) <= ulp * unit * std::max(scale, std::fabs(b[i]));
    if (!same && ++n <= 4) text += fmt::format("\n  [{}] is {}, JAX {}", i, a[i], b[i]);
  }
  return n > 4 ? text + fmt::format("\n  and {} more", n - 4) : text;
}

const json& file() {
  static const json data = [] {
    std::ifstream stream(source_path("tests/data/jax_functions.json"));
    return json::parse(stream);
  }();
  return data;
}

class JaxFunctions : public ::testing::TestWithParam<json> {};

TEST_P(JaxFunctions, Agree) {
  const json& c = GetParam();
  const std::string name = c["name"];
  const auto found = functions().find(name);
  ASSERT_TRUE(found != functions().end()) << name << " is not in the table";
  const Function& f = found->second;
  Arrays inputs;
  for (const json& input : c["inputs"]) inputs.push_back(load(file()["arrays"][input]));
  const double ulp = c["ulp"], scale = c["scale"];
  const std::string what =
      inputs.empty() ? name : fmt::format("{} of {}", name, to_string(inputs[0].type()));

  // Function by function, and as one program.
  for (const bool jitted : {false, true}) {
    const Arrays outputs = jitted ? jit(f)(inputs) : f(inputs);
    ASSERT_EQ(outputs.size(), c["outputs"].size());
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_EQ(differences(outputs[i], c["outputs"][i], ulp, scale), "")
          << what << " result " << i << (jitted ? " jitted" : "");
  }
  if (!c.contains("grads")) return;
  for (const auto& [key, want] : c["grads"].items()) {
    const auto which = static_cast<size_t>(std::stoi(key));
    const auto loss = [&](const Array& x) {
      Arrays all = inputs;
      all[which] = x;
      const Array y = f(all)[0];
      return sum(y * cos(reshape(arange(y.size()).astype(y.dtype()), y.shape().dims())));
    };
    EXPECT_EQ(differences(grad(loss)(inputs[which]), want, c["gulp"], c["gscale"]), "")
        << what << " gradient by input " << which;
  }
}

std::vector<json> cases() {
  return file()["cases"].get<std::vector<json>>();
}

INSTANTIATE_TEST_SUITE_P(Table, JaxFunctions, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name =
      fmt::format("{}_{}", info.param["name"].template get<std::string>(), info.index);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace stow
