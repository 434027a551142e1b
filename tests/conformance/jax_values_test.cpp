// Values and gradients of the functions over arrays against JAX's, from tests/data/jax_values.json.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/source_path.h"
#include "tests/conformance/jax_cases.h"

namespace stow {
namespace {

using nlohmann::json;
using testing::Arrays;
using testing::Function;
using testing::load;

// One array of one argument, of two, of three.
template <typename F>
Function of(F f) {
  return [f](const Arrays& x) -> Arrays {
    if constexpr (std::is_invocable_v<F, Array>)
      return {f(x.at(0))};
    else if constexpr (std::is_invocable_v<F, Array, Array>)
      return {f(x.at(0), x.at(1))};
    else
      return {f(x.at(0), x.at(1), x.at(2))};
  };
}
#define STOW_UNARY(f)                               \
  {#f, of([](Array a) { return f(a); })}, {         \
#f "_special", of([](Array a) { return f(a); }) \
  }
#define STOW_BINARY(f)                                      \
  {#f, of([](Array a, Array b) { return f(a, b); })}, {     \
#f "_int", of([](Array a, Array b) { return f(a, b); }) \
  }
#define STOW_REDUCE(f)                                                  \
  {#f, of([](Array a) { return f(a); })}, {#f "_axes", of([](Array a) { \
                                             return f(a, {0, 2});       \
                                           })},                         \
  {                                                                     \
#f "_keepdims", of([](Array a) { return f(a, -1, KEEPDIMS); })      \
  }

Array test_key() {
  return random::key(0x0123456789abcdef);
}
Arrays random_of(Array x) {
  return {x};
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> table = {
      STOW_UNARY(exp), STOW_UNARY(expm1), STOW_UNARY(tanh), STOW_UNARY(sin), STOW_UNARY(cos),
      STOW_UNARY(abs), STOW_UNARY(sign), STOW_UNARY(floor), STOW_UNARY(ceil), STOW_UNARY(round),
      STOW_UNARY(square), STOW_UNARY(erf), STOW_UNARY(logistic), STOW_UNARY(relu),
      STOW_UNARY(silu), STOW_UNARY(gelu), STOW_UNARY(softplus), STOW_UNARY(reciprocal),
      STOW_UNARY(isfinite), STOW_UNARY(isnan), STOW_UNARY(log), STOW_UNARY(log1p),
      STOW_UNARY(sqrt), STOW_UNARY(rsqrt), STOW_UNARY(erf_inv), STOW_UNARY(softmax),
      STOW_UNARY(log_softmax),
      {"gelu_exact", of([](Array a) { return gelu(a, false); })},
      STOW_BINARY(add), STOW_BINARY(subtract), STOW_BINARY(multiply), STOW_BINARY(divide),
      STOW_BINARY(maximum), STOW_BINARY(minimum), STOW_BINARY(remainder), STOW_BINARY(fmod),
      STOW_BINARY(floor_divide), STOW_BINARY(logaddexp),
      {"divide_ints_of_bytes", of([](Array a, Array b) { return a / b; })},
      {"remainder_u32", of([](Array a, Array b) { return a % b; })},
      {"pow", of([](Array a, Array b) { return pow(a, b); })},
      {"pow3", of([](Array a) { return pow(a, 3); })},
      {"pow_minus2", of([](Array a) { return pow(a, -2); })},
      {"clip", of([](Array a) { return clip(a, -0.5, 0.5); })},
      {"where", of([](Array a, Array b) { return where(a > 0, a, b); })},
      {"left_shift", of([](Array a) { return a << 3; })},
      {"right_shift", of([](Array a) { return a >> 1; })},
      {"right_shift_u32", of([](Array a) { return a >> 1; })},
      {"bf16_times_two", of([](Array a) { return a * 2.1; })},
      {"i8_sum", of([](Array a) { return sum(a); })},
#define KEEPDIMS true
      STOW_REDUCE(sum), STOW_REDUCE(mean), STOW_REDUCE(prod), STOW_REDUCE(max), STOW_REDUCE(min),
      STOW_REDUCE(logsumexp),
#undef KEEPDIMS
#define KEEPDIMS 0, true
      STOW_REDUCE(var),
#undef KEEPDIMS
      {"max_ties", of([](Array a) { return max(a, 1); })},
      {"logsumexp_inf", of([](Array a) { return logsumexp(a, 1); })},
      {"var_ddof", of([](Array a) { return var(a, 0, 1); })},
      {"argmax", of([](Array a) { return argmax(a, 1); })},
      {"argmin_all", of([](Array a) { return argmin(a); })},
      {"cumsum", of([](Array a) { return cumsum(a, 1); })},
      {"cumsum_reverse", of([](Array a) { return cumsum(a, 1, true); })},
      {"sort", of([](Array a) { return sort(a); })},
      {"argsort", of([](Array a) { return argsort(a, 0); })},
      {"any", of([](Array a) { return any(a > 1, 0); })},
      {"all", of([](Array a) { return all(a > -1, 0); })},
      {"transpose", of([](Array a) { return transpose(a, {2, 0, 1}); })},
      {"reshape", of([](Array a) { return reshape(a, {4, -1}); })},
      {"concatenate", of([](Array a, Array b) { return concatenate({a, b}, 1); })},
      {"stack", of([](Array a, Array b) { return stack({a, b}, -1); })},
      {"split", [](const Arrays& x) { return split(x[0], 2, 1); }},
      {"flip", of([](Array a) { return flip(a, 1); })},
      {"roll", of([](Array a) { return roll(a, -1, 1); })},
      {"tile", of([](Array a) { return tile(a, {2, 3}); })},
      {"repeat", of([](Array a) { return repeat(a, 2, 0); })},
      {"pad", of([](Array a) { return pad(a, {{1, 0}, {0, 2}}, 9); })},
      {"pad_general", of([](Array a) { return pad_general(a, 1, {-1, 2}, {1, -1}, {1, 0}); })},
      {"slice_step", of([](Array a) { return a.slice(1, 3, 0, -2); })},
      {"slice_to_nothing", of([](Array a) { return a.slice(0, 2, 1); })},
      {"index", of([](Array a) { return a.index({1, range(0, 3), newaxis, -2}); })},
      {"tril", of([](Array a) { return tril(a, -1); })},
      {"triu", of([](Array a) { return triu(a, 1); })},
      {"dynamic_slice", of([](Array a, Array i) { return dynamic_slice(a, {i, 1}, {2, 2}); })},
      {"dynamic_update_slice",
       of([](Array a, Array u, Array i) { return dynamic_update_slice(a, u, {i, 1}); })},
      {"take", of([](Array a, Array i) { return take(a, i, 1); })},
      {"take_bytes", of([](Array a, Array i) { return take(a, i); })},
      {"take_along_axis", of([](Array a, Array i) { return take_along_axis(a, i, 1); })},
      {"one_hot", of([](Array i) { return one_hot(i, 4); })},
      {"arange", of([](Array a) { return a + arange(7, -2, -3); })},
      {"eye", of([](Array a) { return a + eye(3, 4); })},
      {"matmul", of([](Array a, Array b) { return matmul(a, b); })},
      {"outer", of([](Array a, Array b) { return outer(a, b); })},
      {"attention",
       of([](Array q, Array k, Array v) { return attention(q, k, v, {.causal = true}); })},
      {"attention_scaled",
       of([](Array q, Array k, Array v) { return attention(q, k, v, {.scale = 0.25f}); })},
      {"cross_entropy", of([](Array a, Array t) { return cross_entropy(a, t); })},
      {"rms_norm", of([](Array a, Array w) { return rms_norm(a, w); })},
      {"layer_norm", of([](Array a, Array w, Array b) { return layer_norm(a, w, b); })},
      {"second_derivative",
       [](const Arrays& x) {
         auto f = [](Array a) { return sum(sin(a * a)); };
         auto df = [&](Array a) { return sum(grad(f)(a)); };
         return Arrays{grad(df)(x[0])};
       }},
      {"random_key", [](const Arrays&) { return random_of(test_key()); }},
      {"random_split", [](const Arrays&) { return random_of(random::split_array(test_key(), 5)); }},
      {"random_fold_in", [](const Arrays&) { return random_of(random::fold_in(test_key(), 77)); }},
      {"random_bits", [](const Arrays&) { return random_of(random::bits(test_key(), {3, 5})); }},
      {"random_bits_u8",
       [](const Arrays&) { return random_of(random::bits(test_key(), {7}, DType::kU8)); }},
      {"random_bits_u64",
       [](const Arrays&) { return random_of(random::bits(test_key(), {3, 2}, DType::kU64)); }},
      {"random_uniform",
       [](const Arrays&) { return random_of(random::uniform(test_key(), {4, 3})); }},
      {"random_uniform_range",
       [](const Arrays&) {
         return random_of(random::uniform(test_key(), {5}, DType::kF32, -2, 3));
       }},
      {"random_uniform_bf16",
       [](const Arrays&) { return random_of(random::uniform(test_key(), {5}, DType::kBF16)); }},
      {"random_uniform_f16",
       [](const Arrays&) { return random_of(random::uniform(test_key(), {5}, DType::kF16)); }},
      {"random_uniform_f64",
       [](const Arrays&) { return random_of(random::uniform(test_key(), {5}, DType::kF64)); }},
      {"random_bernoulli",
       [](const Arrays&) { return random_of(random::bernoulli(test_key(), 0.3, {9})); }},
      {"random_normal", [](const Arrays&) { return random_of(random::normal(test_key(), {64})); }},
      {"random_gumbel", [](const Arrays&) { return random_of(random::gumbel(test_key(), {9})); }},
      {"random_categorical",
       [](const Arrays& x) { return random_of(random::categorical(test_key(), x[0])); }},
  };
  return table;
}

Arrays scanned(const Arrays& x, bool reverse) {
  const auto [carry, ys] = scan([](Array h, Array t) { return std::pair(tanh(h * t), h + t); },
                                x[0], x[1], {.reverse = reverse});
  return {carry, ys};
}

Function function_of(const std::string& name) {
  if (name.starts_with("einsum_")) {
    const std::string spec = name.substr(name.find(' ') + 1);
    return [spec](const Arrays& x) { return Arrays{einsum(spec, x)}; };
  }
  if (name.starts_with("scan"))
    return [reverse = name == "scan_reverse"](const Arrays& x) { return scanned(x, reverse); };
  const auto found = functions().find(name.starts_with("matmul_") ? "matmul" : name);
  return found == functions().end() ? Function() : found->second;
}

void expect_near(const Array& got, const json& want, double tolerance, const std::string& what) {
  const Array expected = load(want);
  ASSERT_EQ(to_string(got.type()), to_string(expected.type())) << what;
  if (want["dtype"] == "u64") {
    EXPECT_EQ(got.to_vector<uint64_t>(), expected.to_vector<uint64_t>()) << what;
    return;
  }
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << what << "[" << i << "] is " << a[i];
    } else if (std::isinf(b[i])) {
      EXPECT_EQ(a[i], b[i]) << what << "[" << i << "]";
    } else {
      EXPECT_LE(std::fabs(a[i] - b[i]), tolerance * std::max(1.0, std::fabs(b[i])))
          << what << "[" << i << "] is " << a[i] << ", JAX " << b[i];
    }
  }
}

std::vector<json> cases() {
  std::ifstream file(source_path("tests/data/jax_values.json"));
  return json::parse(file).get<std::vector<json>>();
}

class JaxValues : public ::testing::TestWithParam<json> {};

TEST_P(JaxValues, Agree) {
  const json& c = GetParam();
  const std::string name = c["name"];
  const Function f = function_of(name);
  ASSERT_TRUE(f) << name << " is not in the table";
  Arrays inputs;
  for (const json& input : c["inputs"]) inputs.push_back(load(input));
  const double tolerance = c["tol"];

  const Arrays outputs = f(inputs);
  ASSERT_EQ(outputs.size(), c["outputs"].size());
  for (size_t i = 0; i < outputs.size(); ++i)
    expect_near(outputs[i], c["outputs"][i], tolerance, name + fmt::format(" output {}", i));
  const Arrays jitted = jit(f)(inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    expect_near(jitted[i], c["outputs"][i], tolerance, name + fmt::format(" jitted {}", i));
  if (!c.contains("grad")) return;
  const auto loss = [&](const Array& x) {
    Arrays all = inputs;
    all[0] = x;
    const Array y = f(all)[0];
    return sum(y * cos(reshape(arange(y.size()).astype(y.dtype()), y.shape().dims())));
  };
  expect_near(grad(loss)(inputs[0]), c["grad"], 10 * tolerance, name + " gradient");
}

INSTANTIATE_TEST_SUITE_P(Table, JaxValues, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param["name"];
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace stow
