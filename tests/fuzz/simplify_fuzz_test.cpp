#include <gtest/gtest.h>

#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/simplify.h"
#include "tests/fuzz/random_graph.h"
#include "tests/support/evaluate.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::evaluate;

// Verified, of the same inputs and outputs, with the same bits.
void expect_same_program(const Graph& before, const Graph& after,
                         const std::vector<Bytes>& inputs) {
  ASSERT_NO_THROW(verify(after)) << print(before) << print(after);
  ASSERT_EQ(before.inputs().size(), after.inputs().size());
  ASSERT_EQ(before.outputs().size(), after.outputs().size());
  for (size_t i = 0; i < before.outputs().size(); ++i)
    ASSERT_EQ(before.type(before.outputs()[i]), after.type(after.outputs()[i]));
  ASSERT_EQ(evaluate(before, inputs), evaluate(after, inputs)) << print(before) << print(after);
}

TEST(SimplifyFuzz, EveryBitStays) {
  size_t n_before = 0, n_after = 0, n_dead_only = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Graph graph = testing::random_graph(random, 30, 2);
    ASSERT_NO_THROW(verify(graph)) << print(graph);
    std::vector<Bytes> inputs;
    for (ValueId input : graph.inputs())
      inputs.push_back(testing::random_array(random, graph.type(input)));
    const Graph live = remove_dead_code(graph), simple = simplify(graph);
    expect_same_program(graph, live, inputs);
    expect_same_program(graph, simple, inputs);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(equal(remove_dead_code(live), live)) << print(live);
    EXPECT_TRUE(equal(remove_dead_code(simple), simple)) << print(simple);
    n_before += graph.n_nodes();
    n_dead_only += live.n_nodes();
    n_after += simple.n_nodes();
  }
  EXPECT_LT(n_dead_only, n_before / 2);
  EXPECT_LT(n_after, n_dead_only * 9 / 10);
}

}  // namespace
}  // namespace stow
