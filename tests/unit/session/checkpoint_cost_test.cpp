// A checkpoint around much of a program that needs more than keeping everything is named in the
// plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/bytes.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Arrays = std::vector<Array>;

Array layer(const Array& h, const Array& w) { return tanh(matmul(sin(h), w)); }
Array net(const Arrays& w, const Array& x) {
  Array h = x;
  for (const Array& v : w) h = layer(h, v);
  return h;
}
template <typename Loss>
MemoryAnalysis plan(const Loss& loss, const Arrays& w) {
  return jit(grad(loss)).lower(w, Array::abstract({4096, 64})).compile().memory_analysis();
}
const Arrays kWeights(6, Array::abstract({64, 64}));

TEST(CheckpointCost, OfOneAroundAWholeNetIsSaid) {
  const auto plain = [](const Arrays& w, const Array& x) { return sum(square(net(w, x))); };
  const int line = __LINE__ + 2;
  const auto marked = [](const Arrays& w, const Array& x) {
    return sum(square(checkpoint(net, nothing_saveable())(w, x)));
  };
  const MemoryAnalysis kept = plan(plain, kWeights), again = plan(marked, kWeights);
  EXPECT_THAT(kept.notes, IsEmpty());
  const int64_t more = again.device().total_bytes - kept.device().total_bytes;
  ASSERT_GT(more, 0);
  EXPECT_THAT(again.limits, IsEmpty());
  EXPECT_THAT(again.notes, ElementsAre(StartsWith(fmt::format(
                               "checkpoint at checkpoint_cost_test.cpp:{} raises the peak "
                               "by about {}, against keeping every value: ",
                               line, format_bytes(more)))));
  EXPECT_THAT(to_string(again), HasSubstr("note: checkpoint at "));
}

// Ordinary checkpoints save memory, and are not spoken of.
TEST(CheckpointCost, OfLayersIsNothing) {
  const auto each = [](const Arrays& w, const Array& x) {
    Array h = x;
    for (const Array& v : w) h = checkpoint(layer, nothing_saveable())(h, v);
    return sum(square(h));
  };
  EXPECT_THAT(plan(each, Arrays(12, kWeights[0])).notes, IsEmpty());
  for (const PolicyPtr& policy : {nothing_saveable(), dots_saveable()}) {
    const auto scanned = [&](const Arrays& w, const Array& x) {
      return sum(square(scan(checkpoint(layer, policy), x, w[0])));
    };
    for (const int64_t n : {2, 12})
      EXPECT_THAT(plan(scanned, {Array::abstract({n, 64, 64})}).notes, IsEmpty());
  }
}

}  // namespace
}  // namespace stow
