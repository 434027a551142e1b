// The functions that random functions are made of.
#include "stowage/stowage.h"
#include "tests/fuzz/random_function.h"

namespace stow::testing {
namespace {

using Inner = std::span<const Function>;
using Numbers = std::span<const int>;

#define STOW_BASE(name, ...)                                                         \
  FunctionKind {                                                                     \
    name, 0, {}, [](const Array& x, Inner, Numbers) -> Array { return __VA_ARGS__; } \
  }

// Four numbers that differ.
Array numbers(double scale, double offset = 0) {
  return sin(arange(4, DType::kF64) * 1.7 + offset) * scale;
}
// x as queries, keys and values of two heads.
Array attend(const Array& x) {
  const Array q = reshape(x, {1, 2, 2, 1}), k = reshape(sin(x), {1, 2, 2, 1});
  return attention(q, k, reshape(flip(x), {1, 2, 2, 1}), {.causal = true}).reshape({4});
}
Array softmax_of_scores(const Array& x) {
  const Array scores = outer(x, x + 0.5) + captured_weights();
  return matmul(softmax(where(tri(4, {}, 0, DType::kBool), scores, -1e9)), x);
}
Array convolved(const Array& x) {
  const Array kernel = captured_weights().slice(0, 0, 2).reshape({2, 2, 2});
  return conv(x.reshape({1, 2, 2}), kernel, {1}, "SAME").reshape({4});
}

}  // namespace

const Array& captured_weights() {
  static const Array weights = [] {
    std::vector<double> values;
    for (int i = 0; i < 16; ++i) values.push_back(((i * 7919 + 505) % 201 - 100) / 213.0);
    return Array::from(values, {4, 4});
  }();
  return weights;
}

std::vector<FunctionKind> base_functions() {
  return {
      STOW_BASE("identity", x),
      STOW_BASE("sin", sin(x)),
      STOW_BASE("half_square", x * x * 0.5),
      STOW_BASE("softmax", softmax(x) * 2),
      STOW_BASE("matmul", matmul(captured_weights(), x)),
      STOW_BASE("matrix_square", matmul(x.reshape({2, 2}), x.reshape({2, 2})).reshape({4}) * 0.5),
      STOW_BASE("einsum", einsum("i,j,ij->j", {x, x, captured_weights()})),
      STOW_BASE("einsum_transposed",
                einsum("ij,kj->ki",
                       {x.reshape({2, 2}), captured_weights().slice(0, 0, 4, 2).slice(1, 1, 3)})
                    .reshape({4})),
      STOW_BASE("outer_sum", sum(outer(x, sin(x)), 0) * 0.4),
      STOW_BASE("cumsum", cumsum(x) * 0.3),
      STOW_BASE("cumsum_back", cumsum(x, 0, true) * 0.3),
      STOW_BASE("cumprod", cumprod(x)),
      STOW_BASE("cummax", cummax(x, 0, true)),
      STOW_BASE("cumlogsumexp", cumlogsumexp(x)),
      STOW_BASE("linear_scan", linear_scan(tanh(x), cos(x), 0, true)),
      STOW_BASE("sort", sort(x)),
      STOW_BASE("sort_along", sort(std::vector<Array>{x, x * x}, -1, 1)[1]),
      STOW_BASE("top_k", top_k(x, 4).first),
      STOW_BASE("order", take(sin(x), argsort(x, -1, true))),
      STOW_BASE("median", x - median(x) * 0.5),
      STOW_BASE("gather", take(x, (arange(4) * 3 + 2) % 4)),
      STOW_BASE("gather_repeated", x.reshape({2, 2}).index({arange(4) % 2, arange(4) * 3 % 2})),
      STOW_BASE("scatter_add", x.at({arange(2) * 2 - 1}).add(cos(x.slice(0, 0, 2)))),
      STOW_BASE("scatter_multiply", x.at({arange(3) % 2}).multiply(x.slice(0, 1, 4))),
      STOW_BASE("scatter_max", x.at({arange(3) % 2}).max(sin(x.slice(0, 1, 4)))),
      STOW_BASE("set_part", x.at({range(1, 3)}).set(x.slice(0, 0, 4, 2) * x[1])),
      STOW_BASE("at_argmax", dynamic_update_slice(x, x.slice(0, 1, 3) * 2, {argmax(x)})),
      STOW_BASE("from_argmin", x * sum(dynamic_slice(x, {argmin(x)}, {2}))),
      STOW_BASE("maximum", maximum(x, 0.1)),
      STOW_BASE("minimum_each", minimum(x, flip(x) * 0.5)),
      STOW_BASE("clip", clip(x, -0.7, 0.6)),
      STOW_BASE("where", where(x > 0, x, x * 0.2)),
      STOW_BASE("largest", x * max(x)),
      STOW_BASE("product", x + prod(x)),
      STOW_BASE("standardize", (x - mean(x)) / sqrt(var(x) + 0.2)),
      STOW_BASE("normalize", x / (1 + sum(pow(x, 2)))),
      STOW_BASE("layer_norm", layer_norm(x, cos(x), {}, 0.1)),
      STOW_BASE("logsumexp", x - logsumexp(x)),
      STOW_BASE("window_max", reduce_window_max(x, {2}, {.padding = {{1, 0}}})),
      STOW_BASE("window_sum", reduce_window_sum(x, {3}, {.padding = {{1, 1}}}) * 0.5),
      STOW_BASE("convolve", convolve(x, x, "same")),
      STOW_BASE("convolution", convolved(x)),
      STOW_BASE("roll", roll(x, 1, 0) * x),
      STOW_BASE("pad", pad(x.slice(0, 1, 3), {{1, 1}}, sum(x)) * 0.5),
      STOW_BASE("pad_reflect", pad(x.slice(0, 0, 2), {{1, 1}}, PadMode::kReflect)),
      STOW_BASE("pad_between", pad_general(x, x[2], {-1}, {-2}, {1})),
      STOW_BASE("concatenate", concatenate({x.slice(0, 2, 4), sin(x.slice(0, 0, 2))})),
      STOW_BASE("transposed_square", transpose(x.reshape({2, 2})).reshape({4}) * x),
      STOW_BASE("broadcast", sum(broadcast_to(x, {3, 4}) * x[0], 0) * 0.3),
      STOW_BASE("convert", (x * 2).astype(DType::kF64) + (x > 0).astype(DType::kF64)),
      STOW_BASE("attention", attend(x)),
      STOW_BASE("softmax_of_scores", softmax_of_scores(x)),
      STOW_BASE("power", pow(abs(x) + 0.1, 1.5)),
      STOW_BASE("gelu", gelu(x)),
      STOW_BASE("logaddexp", logaddexp(x, flip(x))),
      STOW_BASE("angle", atan2(x, 1 + x * x)),
      STOW_BASE("erf", erf(x)),
      STOW_BASE("divide", x / (1.5 + sin(flip(x)))),
      STOW_BASE("shifted", numbers(0.5) + x * numbers(1, 2)),
      STOW_BASE("constant", full_like(x, 0.3)),
  };
}
#undef STOW_BASE

}  // namespace stow::testing
