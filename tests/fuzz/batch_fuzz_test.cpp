// Random programs over a batch: example i of the results is the program of example i.
#include <gtest/gtest.h>

#include <random>

#include "stowage/ir/print.h"
#include "stowage/ops/batch.h"
#include "stowage/ops/verify.h"
#include "tests/fuzz/near.h"
#include "tests/fuzz/random_program.h"
#include "tests/support/crash_note.h"

namespace stow {
namespace {

using testing::Bytes;

// The batch lies on the leading axis, so that examples are parts of the bytes.
void check(const testing::RandomProgram& program, std::mt19937_64& random) {
  const Graph& graph = program.graph;
  const int64_t size = 1 + static_cast<int64_t>(random() % 3);
  std::vector<int64_t> axes;
  std::vector<std::vector<Bytes>> examples(static_cast<size_t>(size));
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    axes.push_back(random() % 3 ? 0 : kUnbatched);
    inputs.emplace_back();
    for (auto& example : examples) {
      example.push_back(axes[i] == kUnbatched
                            ? program.inputs[i]
                            : testing::random_values(random(), graph.type(graph.inputs()[i])));
      if (axes[i] != kUnbatched || &example == &examples[0])
        inputs[i].insert(inputs[i].end(), example[i].begin(), example[i].end());
    }
  }
  const BatchedGraph batched =
      batch_graph(graph, size, axes, std::vector<int64_t>(graph.outputs().size(), 0));
  testing::set_crash_note(print(batched.graph));
  verify(batched.graph);
  const std::vector<Bytes> results = testing::evaluate(batched.graph, inputs);
  for (size_t e = 0; e < examples.size(); ++e) {
    std::vector<Bytes> got;
    for (size_t o = 0; o < results.size(); ++o) {
      const auto bytes = static_cast<ptrdiff_t>(graph.type(graph.outputs()[o]).bytes());
      const auto at = results[o].begin() + static_cast<ptrdiff_t>(e) * bytes;
      got.emplace_back(at, at + bytes);
    }
    ASSERT_EQ(testing::compare_loosely(graph, examples[e], got), "") << "example " << e << " of\n"
                                                                     << print(graph);
  }
}

TEST(BatchFuzz, ProgramsOverABatchAreTheirExamples) {
  std::mt19937_64 random(31);
  int n = 0;
  for (uint64_t seed = 1; n < 120; ++seed) {
    testing::set_crash_note(fmt::format("making the program of seed {}", seed));
    const testing::RandomProgram program = testing::random_program(seed);
    if (!program.smooth) continue;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    check(program, random);
    if (HasFatalFailure()) return;
    ++n;
  }
}

}  // namespace
}  // namespace stow
