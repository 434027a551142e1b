// What operations take beside their operands and results.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace stow {
namespace {

// Of f32[8,32,32,16], in its sizes. What holds today and a little, and where it says so less than JAX 0.10
// takes on a CPU.
struct Case {
  std::string name;
  double most;
  std::function<Array(const Array& x, const Array& kernel)> f;
};

std::vector<Case> cases() {
  const ConvOptions o{.padding = "SAME", .lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"};
  const auto gradient = [](auto f) {
    return [f](const Array& x, const Array& k) {
      return grad([&](const Array& x) { return sum(square(f(x, k))); })(x);
    };
  };
  const auto transposed = [o](int64_t stride) {
    return [=](const Array& x, const Array& k) { return conv_transpose(x, k, {stride, stride}, o); };
  };
  return {
      {"conv", 0.1, [=](const Array& x, const Array& k) { return conv_general_dilated(x, k, o); }},
      {"conv_gradient", 1.3, gradient([=](const Array& x, const Array& k) {
         return conv_general_dilated(x, k, o);
       })},
      {"conv_transpose_by_2", 0.1, transposed(2)},
      {"conv_transpose_by_4", 0.1, transposed(4)},
      {"conv_transpose_gradient", 7.5, gradient(transposed(2))},  // JAX 13
      {"max_pool_gradient", 0.6, gradient([](const Array& x, const Array&) {
         return max_pool(x, {2, 2}, {2, 2});
       })},  // JAX 5.5
      {"avg_pool_gradient", 0.3, gradient([](const Array& x, const Array&) {
         return avg_pool(x, {2, 2}, {2, 2});
       })},
      {"argsort", 0.1, [](const Array& x, const Array&) { return argsort(x, 1); }},
      {"argsort_flat", 2.1, [](const Array& x, const Array&) { return argsort(ravel(x)); }},
      {"take_along_axis", 1.1, [](const Array& x, const Array&) {
         return take_along_axis(x, argsort(x, 1), 1);
       }},
      {"cumsum", 0.1, [](const Array& x, const Array&) { return cumsum(x, 1); }},
      {"one_hot_summed", 1.1, [](const Array& x, const Array&) {
         return sum(one_hot(ravel(x).astype(DType::kI32), 100), 0);
       }},  // JAX 100
      {"bincount", 2.1, [](const Array& x, const Array&) {
         return bincount(ravel(x).astype(DType::kI32), 100);
       }},
      {"histogram", 4.6, [](const Array& x, const Array&) { return histogram(x, 100).first; }},  // JAX 7
      {"searchsorted", 3.6, [](const Array& x, const Array&) {
         return searchsorted(linspace(0, 1, 1000), ravel(x));
       }},  // JAX 5
      {"interp", 3.6, [](const Array& x, const Array&) {
         return interp(x, linspace(0, 1, 1000), linspace(0, 1, 1000));
       }},  // JAX 5
      {"isin", 0.1, [](const Array& x, const Array&) { return isin(x, linspace(0, 1, 1000)); }},  // JAX 258
      {"softmax_gradient", 1.1, gradient([](const Array& x, const Array&) {
         return softmax(x.reshape({-1, 16}), 0);
       })},
      {"scan_of_rows_updated", 0.1, [](const Array& x, const Array&) {
         return scan([&](const Array& c, const Array& i) {
           return dynamic_update_slice_in_dim(
               c, dynamic_index_in_dim(x, i % 8, 0, false).slice(0, 0, 1) +
                      dynamic_slice_in_dim(c, i, 1), i, 0);
         }, zeros({32, 32, 16}), arange(32));
       }},
  };
}

class Temporaries : public ::testing::TestWithParam<Case> {};

TEST_P(Temporaries, AreFew) {
  const int64_t any = Device::unlimited_bytes();
  const DefaultDevice device(Device::virtual_device({any, any, any}, 1));
  const Array x = Array::abstract({8, 32, 32, 16}), kernel = Array::abstract({3, 3, 16, 16});
  const auto compiled = jit(GetParam().f).lower(x, kernel).compile();
  const double bytes = static_cast<double>(compiled.memory_analysis().device().temp_bytes);
  EXPECT_LE(bytes / (8 * 32 * 32 * 16 * 4), GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(Operations, Temporaries, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stow
