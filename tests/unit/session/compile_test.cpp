// Device memory of compiled programs: temporaries of operations, and states of many arrays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace stow {
namespace {

// What operations take beside their operands and results, of f32[8,32,32,16], in its sizes. What
// holds today and a little, and where it says so less than JAX 0.10 takes on a CPU.
struct Case {
  std::string name;
  double most;
  std::function<Array(const Array& x, const Array& kernel)> f;
};

std::vector<Case> cases() {
  const ConvOptions o{
      .padding = "SAME", .lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"};
  const auto gradient = [](auto f) {
    return [f](const Array& x, const Array& k) {
      return grad([&](const Array& x) { return sum(square(f(x, k))); })(x);
    };
  };
  const auto transposed = [o](int64_t stride) {
    return [=](const Array& x, const Array& k) {
      return conv_transpose(x, k, {stride, stride}, o);
    };
  };
  return {
      {"conv", 0.1, [=](const Array& x, const Array& k) { return conv_general_dilated(x, k, o); }},
      {"conv_gradient", 1.3,
       gradient([=](const Array& x, const Array& k) { return conv_general_dilated(x, k, o); })},
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
      {"take_along_axis", 1.1,
       [](const Array& x, const Array&) { return take_along_axis(x, argsort(x, 1), 1); }},
      {"cumsum", 0.1, [](const Array& x, const Array&) { return cumsum(x, 1); }},
      {"one_hot_summed", 1.1,
       [](const Array& x, const Array&) {
         return sum(one_hot(ravel(x).astype(DType::kI32), 100), 0);
       }},  // JAX 100
      {"bincount", 2.1,
       [](const Array& x, const Array&) { return bincount(ravel(x).astype(DType::kI32), 100); }},
      {"histogram", 4.6,
       [](const Array& x, const Array&) { return histogram(x, 100).first; }},  // JAX 7
      {"searchsorted", 3.6,
       [](const Array& x, const Array&) {
         return searchsorted(linspace(0, 1, 1000), ravel(x));
       }},  // JAX 5
      {"interp", 3.6,
       [](const Array& x, const Array&) {
         return interp(x, linspace(0, 1, 1000), linspace(0, 1, 1000));
       }},  // JAX 5
      {"isin", 0.1,
       [](const Array& x, const Array&) { return isin(x, linspace(0, 1, 1000)); }},  // JAX 258
      {"softmax_gradient", 1.1, gradient([](const Array& x, const Array&) {
         return softmax(x.reshape({-1, 16}), 0);
       })},
      {"scan_of_rows_updated", 0.1,
       [](const Array& x, const Array&) {
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

// States of many arrays: what the device needs grows with them and does not jump where a pass has
// more to do.
constexpr int64_t kElems = 4096;
constexpr double kArrayBytes = 4.0 * kElems;

// A step of Adam over n arrays, clipped by the norm of all gradients, with everything on `kind`
// between steps. In arrays of the device.
double device_arrays(int n, MemoryKind kind, int transfers_ahead) {
  const DevicePtr device = Device::virtual_device(
      {Device::unlimited_bytes(), Device::unlimited_bytes(), Device::unlimited_bytes()}, 1);
  const DefaultDevice guard(device);
  using Arrays = std::vector<Array>;
  const Arrays p(static_cast<size_t>(n),
                 Array::abstract(ArrayType{DType::kF32, Shape{kElems}, kind}));
  const auto opt = optim::chain(optim::clip_by_global_norm(1.0), optim::adam(1e-3));
  const optim::OptState state = device_put(opt.init(p), kind);
  const auto loss = [](const Arrays& p, const Array& x) {
    Array h = x;
    for (const Array& w : p) h = tanh(h * device_put(w, MemoryKind::kDevice) + h);
    return sum(h);
  };
  JitOptions options{.donate_argnums = {0, 1}};
  options.compile.transfers_ahead = transfers_ahead;
  const auto step = jit(
      [&](const Arrays& p, const optim::OptState& o, const Array& x) {
        const Arrays g = device_put(grad(loss)(p, x), MemoryKind::kDevice),
                     here = device_put(p, MemoryKind::kDevice);
        const auto [u, next] = opt.update(g, device_put(o, MemoryKind::kDevice), here);
        return std::pair(device_put(optim::apply_updates(here, u), kind), device_put(next, kind));
      },
      options);
  const auto compiled = step.lower(p, state, Array::abstract({kElems})).compile();
  return static_cast<double>(compiled.memory_analysis().device().total_bytes) / kArrayBytes;
}

// An activation and a weight of each layer, then its gradient; and the few arrays that are worked
// on.
constexpr int kOnTheirWay = 30;
TEST(ManyArrays, OnAnyMemoryTakeWhatTheirNumberSays) {
  using Kind = MemoryKind;
  for (const auto& [n, kind] :
       {std::pair(125, Kind::kPinnedHost), std::pair(220, Kind::kPinnedHost),
        std::pair(225, Kind::kPinnedHost), std::pair(225, Kind::kDisk),
        std::pair(1000, Kind::kPinnedHost), std::pair(1000, Kind::kDisk)})
    EXPECT_LE(device_arrays(n, kind, 0), 2 * n + kOnTheirWay)
        << n << " on " << memory_kind_name(kind);
}

TEST(ManyArrays, MovedAheadTakeNoMore) {
  for (const int n : {100, 250})
    EXPECT_LE(device_arrays(n, MemoryKind::kPinnedHost, CompileOptions().transfers_ahead),
              2 * n + kOnTheirWay);
}

// A timeline that is too long to be told apart slot by slot is said to be.
TEST(ManyArrays, ALoopBeyondTheTimelineIsReported) {
  const auto limits_of = [](int64_t n) {
    const auto f = [n](const Array& x) {
      return sum(scan([](const Array& x, const Array& i) { return sin(x) * i; }, x,
                      arange(n, DType::kF32)));
    };
    return jit(grad(f)).lower(Array::abstract({2})).compile().memory_analysis();
  };
  EXPECT_THAT(limits_of(1000).limits, ::testing::IsEmpty());
  const MemoryAnalysis beyond = limits_of(500'000);
  ASSERT_THAT(beyond.limits, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(to_string(beyond),
              ::testing::HasSubstr("limit: lifetimes: the timeline of a loop of 500000 "
                                   "iterations"));
}

}  // namespace
}  // namespace stow
