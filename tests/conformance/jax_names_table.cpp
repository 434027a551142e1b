// The rows of jax_functions_test.cpp for names.h, initializers.h and overloads of older functions.
#include "tests/conformance/jax_cases.h"

namespace stow::testing {
namespace {

#define STOW_PAIR(name, ...)                                             \
  {                                                                      \
    name, [](const Arrays& x) -> Arrays { return pair_of(__VA_ARGS__); } \
  }
#define STOW_LIST(name, ...)                                    \
  {                                                             \
    name, [](const Arrays& x) -> Arrays { return __VA_ARGS__; } \
  }

void add_elementwise(Table& t) {
  t.insert({STOW_2(ldexp),
            STOW_PAIR("frexp", frexp(x[0])),
            STOW_PAIR("modf", modf(x[0])),
            STOW_PAIR("divmod", divmod(x[0], x[1])),
            STOW_2(fmax),
            STOW_2(fmin),
            STOW_2(heaviside),
            STOW_2(logaddexp2),
            STOW_2(float_power),
            STOW_2(true_divide),
            STOW_1(deg2rad),
            STOW_1(radians),
            STOW_1(rad2deg),
            STOW_1(degrees),
            STOW_1(sinc),
            STOW_1(fabs),
            STOW_1(absolute),
            STOW_1(positive),
            STOW_1(invert),
            STOW_1(isposinf),
            STOW_1(isneginf),
            STOW_1(sparse_plus),
            STOW_1(sparse_sigmoid),
            STOW_F("equal_of", equal(x[0], x[1])),
            STOW_F("not_equal_of", not_equal(x[0], x[1])),
            STOW_F("less_of", less(x[0], x[1])),
            STOW_F("less_equal_of", less_equal(x[0], x[1])),
            STOW_F("greater_of", greater(x[0], x[1])),
            STOW_F("greater_equal_of", greater_equal(x[0], x[1])),
            STOW_F("bitwise_and_of", bitwise_and(x[0], x[1])),
            STOW_F("bitwise_or_of", bitwise_or(x[0], x[1])),
            STOW_F("bitwise_xor_of", bitwise_xor(x[0], x[1])),
            STOW_2(allclose),
            STOW_F("allclose_nan", allclose(x[0], x[1], 1e-5, 1e-8, true)),
            STOW_2(array_equal),
            STOW_F("array_equal_nan", array_equal(x[0], x[1], true)),
            STOW_2(array_equiv),
            STOW_F("select", select({x[0], x[1]}, {x[2], x[3]}, 7)),
            STOW_2(polyval)});
  t["bessel_i0e_second"] = [](const Arrays& x) {
    return Arrays{vmap(grad(grad([](const Array& a) { return bessel_i0e(a); })))(x[0])};
  };
  t["bessel_i1e_second"] = [](const Arrays& x) {
    return Arrays{vmap(grad(grad([](const Array& a) { return bessel_i1e(a); })))(x[0])};
  };
  t["sinc_hessian"] = [](const Arrays& x) {
    return Arrays{vmap(grad(grad([](const Array& a) { return sinc(a); })))(x[0])};
  };
}

void add_shapes(Table& t) {
  t.insert({STOW_F("logspace", x[0] + logspace(-1, 2, 4)),
            STOW_F("logspace_2", x[0] + logspace(1, 3, 4, false, 2)),
            STOW_F("geomspace", x[0] + geomspace(-1, -1000, 4)),
            STOW_F("geomspace_open", x[0] + geomspace(2, 32, 4, false)),
            STOW_F("arange_floats", x[0] + arange(0.5, 2.5, 0.5)),
            STOW_F("arange_stop", x[0] + arange(3.5)),
            STOW_F("arange_down", x[0] + arange(1, 0, -0.25)),
            STOW_F("arange_tenths", x[0] + arange(0, 1, 0.1)),
            STOW_1(vander),
            STOW_F("vander_rising", vander(x[0], 4, true)),
            STOW_F("diagflat", diagflat(x[0], 1)),
            STOW_F("fill_diagonal", fill_diagonal(x[0], 7)),
            STOW_F("fill_diagonal_with", fill_diagonal(x[0], x[1])),
            STOW_F("put_along_axis", put_along_axis(x[0], x[1], x[2], 1)),
            STOW_LIST("unravel_index", unravel_index(x[0], {2, 3, 4})),
            STOW_1(atleast_1d),
            STOW_1(atleast_2d),
            STOW_1(atleast_3d),
            STOW_LIST("broadcast_arrays", broadcast_arrays({x[0], x[1]})),
            STOW_2(append),
            STOW_F("append_1", append(x[0], x[1], 1)),
            STOW_F("column_stack", column_stack({x[0], x[1]})),
            STOW_F("dstack", dstack({x[0], x[1]})),
            STOW_LIST("vsplit", vsplit(x[0], 2)),
            STOW_LIST("hsplit", hsplit(x[0], 2)),
            STOW_LIST("dsplit", dsplit(x[0], 2)),
            STOW_1(flipud),
            STOW_1(fliplr),
            STOW_F("rot90_axes", rot90(x[0], 1, 2, 1)),
            STOW_1(matrix_transpose),
            STOW_F("rollaxis", rollaxis(x[0], 2, 1)),
            STOW_F("rollaxis_end", rollaxis(x[0], 0, 3)),
            STOW_F("moveaxis_several", moveaxis(x[0], {0, 2}, {-1, 0})),
            STOW_F("roll_flat", roll(x[0], -5)),
            STOW_F("roll_several", roll(x[0], {1, -2}, {0, 2})),
            STOW_F("repeat_flat", repeat(x[0], 2)),
            STOW_F("repeat_counts", repeat(x[0], {2, 0, 3}, 1)),
            STOW_F("broadcast_in_dim", broadcast_in_dim(x[0], {2, 3, 4}, {0, 2})),
            STOW_F("collapse", collapse(x[0], 1)),
            STOW_F("collapse_front", collapse(x[0], 0, 2)),
            STOW_F("index_in_dim", index_in_dim(x[0], -1, 1)),
            STOW_F("slice_in_dim", slice_in_dim(x[0], 1, 4, 2, 2)),
            STOW_F("dynamic_slice_in_dim", dynamic_slice_in_dim(x[0], x[1], 2, 1)),
            STOW_F("dynamic_index_in_dim", dynamic_index_in_dim(x[0], x[1], 1, false)),
            STOW_F("dynamic_update_slice_in_dim", dynamic_update_slice_in_dim(x[0], x[1], x[2], 1)),
            STOW_F("dynamic_update_index_in_dim", dynamic_update_index_in_dim(x[0], x[1], x[2], 1)),
            STOW_F("one_hot_axis0", one_hot(x[0], 4, DType::kF32, 0)),
            STOW_F("full_like_of", zeros_like(x[0], DType::kI32), ones_like(x[0], DType::kBool),
                   full_like(x[0], 2.5, DType::kBF16))});
  for (const int k : {-1, 0, 1, 2, 3}) {
    t[fmt::format("rot90_{}", k)] = [k](const Arrays& x) { return Arrays{rot90(x[0], k)}; };
    t[fmt::format("tril_indices_{}", k)] = [k](const Arrays& x) {
      const auto [rows, columns] = tril_indices(3, k, 4);
      return Arrays{x[0] + rows, x[0] + columns};
    };
    t[fmt::format("triu_indices_{}", k)] = [k](const Arrays& x) {
      const auto [rows, columns] = triu_indices(3, k);
      return Arrays{x[0] + rows, x[0] + columns};
    };
  }
}

void add_reductions(Table& t) {
  t.insert({STOW_1(nanargmax),
            STOW_1(nanargmin),
            STOW_F("nanargmax_axis1", nanargmax(x[0], 1)),
            STOW_F("nanargmin_axis1", nanargmin(x[0], 1)),
            STOW_F("nancumsum", nancumsum(x[0], 1)),
            STOW_1(nancumprod),
            STOW_F("nanpercentile", nanpercentile(x[0], 30, 0)),
            STOW_1(logmeanexp),
            STOW_F("logmeanexp_axis1", logmeanexp(x[0], 1)),
            STOW_F("trapezoid", trapezoid(x[0], 0.5, 1)),
            STOW_1(cov),
            STOW_1(corrcoef),
            STOW_F("segment_sum", segment_sum(x[0], x[1], 4)),
            STOW_F("segment_prod", segment_prod(x[0], x[1], 4)),
            STOW_F("segment_max", segment_max(x[0], x[1], 4)),
            STOW_F("segment_min", segment_min(x[0], x[1], 4)),
            STOW_2(vecdot),
            STOW_2(matvec),
            STOW_2(vecmat),
            STOW_2(cross),
            STOW_F("cross_axis0", cross(x[0], x[1], 0)),
            STOW_F("gather_default", gather(x[0], expand_dims(x[1], 1), {{1}, {0}, {0}}, {1, 3})),
            STOW_F("map", map([](const Array& v) { return sin(v) * sum(v); }, x[0]))});
  for (const int n : {0, 1, 3, 6})
    t[fmt::format("matrix_power_{}", n)] = [n](const Arrays& x) {
      return Arrays{matrix_power(x[0], n)};
    };
}

void add_initializers(Table& t) {
  using namespace initializers;  // NOLINT: the functions under test
  const auto key = [] { return random::key(42); };
  for (const auto& [name, make] :
       {std::pair<const char*, Initializer>{"glorot_uniform", glorot_uniform()},
        {"glorot_normal", glorot_normal()},
        {"lecun_uniform", lecun_uniform()},
        {"lecun_normal", lecun_normal()},
        {"he_uniform", he_uniform()},
        {"he_normal", he_normal()}})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      t[fmt::format("init_{}_{}", name, dtype_name(dtype))] = [=, make = make](const Arrays&) {
        return Arrays{make(key(), {3, 5, 4}, dtype)};
      };
  const auto row = [&](const char* name, const Initializer& make, const Shape& shape) {
    t[name] = [=](const Arrays&) { return Arrays{make(key(), shape)}; };
  };
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    t[fmt::format("uniform_between_{}", dtype_name(dtype))] = [=](const Arrays&) {
      return Arrays{random::uniform(key(), {40}, dtype, 0.1, 0.8)};
    };
    t[fmt::format("truncated_normal_{}", dtype_name(dtype))] = [=](const Arrays&) {
      return Arrays{random::truncated_normal(key(), 0.5, 1, {60}, dtype)};
    };
  }
  row("init_scaling",
      variance_scaling(3, "fan_geo_avg", "normal",
                       {.in_axis = {0, 1}, .out_axis = 2, .batch_axis = 3}),
      {2, 3, 4, 2});
  row("init_fan_out", variance_scaling(0.5, "fan_out", "truncated_normal"), {2, 3, 4});
  row("init_uniform", uniform(0.5), {5});
  row("init_normal", normal(0.5), {5});
  row("init_truncated_normal", truncated_normal(0.5, DType::kF32, -1), {5});
  row("init_constant", constant(0.3, DType::kBF16), {2});
}

}  // namespace

void add_names(Table& table) {
  add_elementwise(table);
  add_shapes(table);
  add_reductions(table);
  add_initializers(table);
}

}  // namespace stow::testing
