// What condensing a timeline leaves out asks nothing of a layout.
#include "stowage/plan/condense.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "stowage/stowage.h"

namespace stow {
namespace {

using Bytes = std::tuple<size_t, int64_t, int64_t>;  // entry, offset, size

// Pairs of bytes that live at once.
std::set<std::pair<Bytes, Bytes>> neighbours(const pack::Problem& problem) {
  std::vector<std::pair<pack::Rect, size_t>> rects;
  for (size_t b = 0; b < problem.buffers.size(); ++b)
    for (const pack::Rect& r : problem.buffers[b].rects) rects.emplace_back(r, b);
  std::set<std::pair<Bytes, Bytes>> pairs;
  for (const auto& [a, of_a] : rects)
    for (const auto& [b, of_b] : rects)
      if (a.lower < b.upper && b.lower < a.upper)
        pairs.emplace(Bytes{of_a, a.offset, a.size}, Bytes{of_b, b.offset, b.size});
  return pairs;
}

struct Case {
  const char* name;
  Array (*net)(const Array& w, const Array& x);
};

constexpr int64_t kSteps = 40;

Array step(const Array& x, const Array& w) { return tanh(matmul(x, w)) + 0.1 * sin(x); }

const std::vector<Case> kCases = {
    {"scan",
     [](const Array& w, const Array& x) {
       return sum(scan([&](const Array& h, const Array& s) { return step(h, w) + s; }, x,
                       arange(kSteps, DType::kF32)));
     }},
    {"checkpointed",
     [](const Array& w, const Array& x) {
       return sum(scan(checkpoint([&](const Array& h, const Array& s) { return step(h, w) + s; }),
                       x, arange(kSteps, DType::kF32)));
     }},
    {"weights",
     [](const Array& w, const Array& x) {
       return sum(scan([](const Array& h, const Array& w) { return step(h, w); }, x,
                       broadcast_to(w.reshape({1, 4, 4}), {kSteps, 4, 4}) * 0.5));
     }},
    {"nested",
     [](const Array& w, const Array& x) {
       return sum(nested_scan([&](const Array& h, const Array& s) { return step(h, w) + s; }, x,
                              arange(kSteps, DType::kF32)));
     }},
    {"offloaded",
     [](const Array& w, const Array& x) {
       return sum(
           nested_scan([&](const Array& h, const Array& s) { return step(h, w) + s; }, x,
                       arange(kSteps, DType::kF32),
                       {.block_policy = save_and_offload_only_these_names({}, {"block_in"})}));
     }},
};

class Condense : public ::testing::TestWithParam<Case> {};

TEST_P(Condense, KeepsWhatLivesTogether) {
  const DevicePtr device = Device::virtual_device(
      {Device::unlimited_bytes(), Device::unlimited_bytes(), Device::unlimited_bytes()}, 1);
  const DefaultDevice guard(device);
  const auto compiled = jit(grad<0, 1>(GetParam().net))
                            .lower(Array::abstract({4, 4}), Array::abstract({3, 4}))
                            .compile();
  const Lifetimes lifetimes = compute_lifetimes(compiled.executable().schedule());
  const std::vector<int64_t> kept = kept_before(lifetimes);
  const pack::Problem condensed = condense(lifetimes.problem, kept);
  EXPECT_EQ(pack::lower_bound(condensed), pack::lower_bound(lifetimes.problem));
  EXPECT_EQ(neighbours(condensed), neighbours(lifetimes.problem));
  EXPECT_LT(kept.back(), static_cast<int64_t>(kept.size()) * 2 / 3);
}

INSTANTIATE_TEST_SUITE_P(, Condense, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stow
