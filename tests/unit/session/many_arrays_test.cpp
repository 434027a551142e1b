// States of many arrays: what the device needs grows with them and does not jump where a pass has
// more to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr int64_t kElems = 4096;
constexpr double kArrayBytes = 4.0 * kElems;

// A step of Adam over n arrays, clipped by the norm of all gradients, with everything on `kind`
// between steps. In arrays of the device.
double device_arrays(int n, MemoryKind kind, int transfers_ahead) {
  const DevicePtr device = Device::virtual_device(
      {Device::unlimited_bytes(), Device::unlimited_bytes(), Device::unlimited_bytes()}, 1);
  const DefaultDevice guard(device);
  using Arrays = std::vector<Array>;
  const Arrays p(static_cast<size_t>(n), Array::abstract(ArrayType{DType::kF32, Shape{kElems}, kind}));
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

// An activation and a weight of each layer, then its gradient; and the few arrays that are worked on.
constexpr int kOnTheirWay = 30;
TEST(ManyArrays, OnAnyMemoryTakeWhatTheirNumberSays) {
  using Kind = MemoryKind;
  for (const auto& [n, kind] : {std::pair(125, Kind::kPinnedHost), std::pair(220, Kind::kPinnedHost),
                                std::pair(225, Kind::kPinnedHost), std::pair(225, Kind::kDisk),
                                std::pair(1000, Kind::kPinnedHost), std::pair(1000, Kind::kDisk)})
    EXPECT_LE(device_arrays(n, kind, 0), 2 * n + kOnTheirWay) << n << " on " << memory_kind_name(kind);
}

TEST(ManyArrays, MovedAheadTakeNoMore) {
  for (const int n : {100, 250})
    EXPECT_LE(device_arrays(n, MemoryKind::kPinnedHost, CompileOptions().transfers_ahead), 2 * n + kOnTheirWay);
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
  EXPECT_THAT(to_string(beyond), ::testing::HasSubstr("limit: lifetimes: the timeline of a loop of 500000 "
                                                      "iterations"));
}

}  // namespace
}  // namespace stow
