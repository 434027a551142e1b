// Offloads without effect: an error after one derivative, a note in the plan after more.
#include "stowage/passes/policy_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class OffloadEffects : public ::testing::Test {
 protected:
  static constexpr int64_t kMiB = 1 << 20;
  using Function = std::function<Array(const Array&)>;

  // The gradient of tanh reads its result, that of sin its argument.
  static Array of_tanh(const Array& a) { return tanh(checkpoint_name(matmul(a, a), "p")); }
  static Array of_sin(const Array& a) { return sin(checkpoint_name(matmul(a, a), "p")); }
  static Function offloaded(Array (*f)(const Array&)) {
    return [f](const Array& a) {
      return checkpoint(f, save_and_offload_only_these_names({}, {"p"}))(a);
    };
  }
  static Function gradient(const Function& f) {
    return
        [f](const Array& a) { return grad([&](const Array& x) { return sum(square(f(x))); })(a); };
  }
  static MemoryAnalysis plan(const Function& f) {
    return jit(f).lower(Array::abstract({8, 8})).compile().memory_analysis();
  }

  DefaultDevice guard_{Device::virtual_device({64 * kMiB, 64 * kMiB, 0}, 1)};
};

TEST_F(OffloadEffects, AreDemandedOfOneDerivative) {
  EXPECT_THAT(message_of([] { plan(gradient(offloaded(of_tanh))); }),
              HasSubstr("offloads what is named 'p', which has no effect"));
  const MemoryAnalysis moved = plan(gradient(offloaded(of_sin)));
  EXPECT_GT(moved.host().total_bytes, 0);
  EXPECT_THAT(moved.notes, IsEmpty());
}

TEST_F(OffloadEffects, AreNotedOfTwoDerivatives) {
  const MemoryAnalysis none = plan(gradient(gradient(offloaded(of_tanh))));
  EXPECT_EQ(none.host().total_bytes, 0);
  EXPECT_THAT(none.notes,
              ElementsAre(AllOf(StartsWith("policy save_and_offload_only_these_names"),
                                HasSubstr(" of checkpoint at policy_requests_test.cpp:"),
                                HasSubstr(" offloads what is named 'p', which has no effect: "))));
  EXPECT_THAT(to_string(none), HasSubstr("note: policy save_and_offload_only_these_names"));
  const MemoryAnalysis moved = plan(gradient(gradient(offloaded(of_sin))));
  EXPECT_GT(moved.host().total_bytes, 0);
  EXPECT_THAT(moved.notes, IsEmpty());
}

// A function does not know how often the rest of its program is differentiated.
TEST_F(OffloadEffects, AreNotedBesideASecondDerivative) {
  const Function once = gradient(offloaded(of_tanh)), twice = gradient(gradient(of_sin));
  const MemoryAnalysis none = plan([&](const Array& a) { return once(a) + twice(a); });
  EXPECT_THAT(none.notes,
              ElementsAre(HasSubstr("offloads what is named 'p', which has no effect")));
}

// One region of several that moves its value is enough.
TEST_F(OffloadEffects, OfOneRegionServeAllOfTheirPolicy) {
  const Function first = offloaded(of_tanh), second = offloaded(of_sin);
  const auto both = gradient([&](const Array& a) { return second(tanh(first(a))); });
  const MemoryAnalysis moved = plan(both);
  EXPECT_GT(moved.host().total_bytes, 0);
  EXPECT_THAT(moved.notes, IsEmpty());
}

// Blocks of a nested scan, of which some derivative needs each input.
TEST_F(OffloadEffects, OfNestedScansHoldUnderEveryTransform) {
  NestedScanOptions options{.blocks = {2}};
  options.block_policy = save_and_offload_only_these_names({}, {"block_in"});
  const auto loss = [&](const Array& x) {
    const auto body = [](const Array& c, const Array& t) {
      return std::pair(tanh(sin(c) + t), c * t);
    };
    const auto [carry, ys] = nested_scan(body, x, stack({x, x * 2, x + 1, x * x}), options);
    return sum(carry + sum(ys, 0));
  };
  const Array x = Array::abstract({4});
  EXPECT_NO_THROW(jit(grad(loss)).lower(x).compile());
  EXPECT_NO_THROW(jit(jacfwd(jacrev(loss))).lower(x).compile());
  EXPECT_NO_THROW(jit(jacrev(jacfwd(loss))).lower(x).compile());
}

}  // namespace
}  // namespace stow
