// Every sample over a batch is the stack of its examples: each op's batching rule, and those of the
// ops in its gradient.
#include <gtest/gtest.h>

#include "stowage/autodiff/reverse.h"
#include "stowage/ir/print.h"
#include "stowage/ops/batch.h"
#include "stowage/ops/verify.h"
#include "tests/ops/near.h"
#include "tests/support/crash_note.h"
#include "tests/support/execute.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::expect_near;
using testing::Numbers;
using testing::Random;
using testing::Sample;

constexpr int64_t kSize = 3;

// Examples of this type side by side on an axis.
Bytes stacked(const std::vector<Bytes>& examples, const ArrayType& type, int64_t axis) {
  int64_t outer = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= type.shape[static_cast<int>(i)];
  Bytes bytes;
  const auto part = static_cast<ptrdiff_t>(outer == 0 ? 0 : type.bytes() / outer);
  for (int64_t o = 0; o < outer; ++o)
    for (const Bytes& example : examples)
      bytes.insert(bytes.end(), example.begin() + o * part, example.begin() + (o + 1) * part);
  return bytes;
}

// The batch of `graph` with these axes gives what its examples give: the same bits from the
// reference kernels, and near those from the compiler.
void check(const Graph& graph, const std::vector<std::vector<Bytes>>& examples,
           const std::vector<int64_t>& axes, Random& random) {
  std::vector<int64_t> out_axes;
  for (ValueId v : graph.outputs())
    out_axes.push_back(
        static_cast<int64_t>(random() % static_cast<uint64_t>(graph.type(v).shape.rank() + 1)));
  const BatchedGraph batched = batch_graph(graph, kSize, axes, out_axes);
  testing::set_crash_note(print(batched.graph));
  verify(batched.graph);
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < axes.size(); ++i) {
    std::vector<Bytes> parts;
    for (const auto& example : examples) parts.push_back(example[i]);
    inputs.push_back(
        axes[i] == kUnbatched ? parts[0] : stacked(parts, graph.type(graph.inputs()[i]), axes[i]));
  }
  std::vector<std::vector<Bytes>> results(graph.outputs().size());
  for (const auto& example : examples) {
    std::vector<Bytes> one = example;
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == kUnbatched) one[i] = examples[0][i];
    const std::vector<Bytes> outputs = testing::evaluate(graph, one);
    for (size_t o = 0; o < outputs.size(); ++o) results[o].push_back(outputs[o]);
  }
  const std::vector<Bytes> naive = testing::evaluate(batched.graph, inputs);
  const testing::Execution real = testing::execute(batched.graph, {}, inputs, 2);
  ASSERT_EQ(real.fault, "");
  for (size_t o = 0; o < results.size(); ++o) {
    const ValueId v = graph.outputs()[o];
    const ArrayType type = batched_type(graph.type(v), out_axes[o], kSize);
    ASSERT_EQ(batched.graph.type(batched.graph.outputs()[o]), type);
    const Bytes want = stacked(results[o], graph.type(v), out_axes[o]);
    ASSERT_NO_FATAL_FAILURE(expect_near(type, naive[o], want)) << "output " << o;
    ASSERT_NO_FATAL_FAILURE(expect_near(type, real.outputs[o], want)) << "output " << o;
  }
}

bool on_device(const Sample& sample) {
  return std::all_of(sample.operands.begin(), sample.operands.end(),
                     [](const ArrayType& t) { return t.kind == MemoryKind::kDevice; });
}

// Every choice of batched operands: all, and each alone. The axes are drawn.
template <typename Check>
void for_each_choice(const Graph& graph, Random& random, const Check& check_choice) {
  const size_t n = graph.inputs().size();
  for (size_t choice = 0; choice <= (n > 1 ? n : 0); ++choice) {
    std::vector<int64_t> axes(n, kUnbatched);
    for (size_t i = 0; i < n; ++i)
      if (choice == 0 || choice == i + 1)
        axes[i] = static_cast<int64_t>(
            random() % static_cast<uint64_t>(graph.type(graph.inputs()[i]).shape.rank() + 1));
    check_choice(axes, choice);
  }
}

// By the sample's name, so that another sample changes nothing that this one draws.
uint64_t seed_of(const Sample& sample, uint64_t seed) {
  for (const char c : to_string(sample)) seed = (seed ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return seed;
}

TEST(Batch, EverySampleIsTheStackOfItsExamples) {
  int n = 0;
  for (const Sample& sample : testing::samples()) {
    Random random(seed_of(sample, 21));
    if (sample.operands.empty() || !on_device(sample)) continue;
    const Graph graph = one_op(sample);
    for_each_choice(graph, random, [&](const std::vector<int64_t>& axes, size_t choice) {
      SCOPED_TRACE(fmt::format("{}, choice {}", to_string(sample), choice));
      std::vector<std::vector<Bytes>> examples;
      for (int64_t e = 0; e < kSize; ++e)
        examples.push_back(testing::encode_all(sample, testing::draw(sample, random)));
      check(graph, examples, axes, random);
      ++n;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(n, 250);
}

TEST(Batch, GradientsOfEverySampleAreTheStackOfTheExamples) {
  for (const Sample& original : testing::samples()) {
    Random random(seed_of(original, 22));
    if (!original.differentiable) continue;
    const Sample sample = testing::widest(original);
    ReverseSpec spec;
    for (int i = 0; i < static_cast<int>(sample.results.size()); ++i)
      if (is_float(sample.results[static_cast<size_t>(i)].dtype) &&
          (sample.cotangent_results.empty() || i == sample.cotangent_results[0]))
        spec.outputs.push_back(i);
    for (int i = 0; i < static_cast<int>(sample.operands.size()); ++i)
      if (is_float(sample.operands[static_cast<size_t>(i)].dtype)) spec.wrt.push_back(i);
    const Graph joint = reverse(one_op(sample), spec);
    for_each_choice(joint, random, [&](const std::vector<int64_t>& axes, size_t choice) {
      SCOPED_TRACE(fmt::format("{}, choice {}", to_string(sample), choice));
      std::vector<std::vector<Bytes>> examples;
      for (int64_t e = 0; e < kSize; ++e) {
        examples.push_back(testing::encode_all(sample, testing::draw(sample, random)));
        for (int o : spec.outputs) {
          const ArrayType& type = sample.results[static_cast<size_t>(o)];
          Numbers ct(static_cast<size_t>(type.elems()));
          for (double& x : ct) x = std::uniform_real_distribution(-1.0, 1.0)(random);
          examples.back().push_back(testing::encode(type.dtype, ct));
        }
      }
      check(joint, examples, axes, random);
    });
    if (HasFatalFailure()) return;
  }
}

// No examples: results without elements, whatever the op.
TEST(Batch, OfNothingIsNothing) {
  for (const Sample& sample : testing::samples()) {
    if (sample.operands.empty() || !on_device(sample)) continue;
    SCOPED_TRACE(to_string(sample));
    const Graph graph = one_op(sample);
    const std::vector<int64_t> in(graph.inputs().size(), 0), out(graph.outputs().size(), 0);
    const BatchedGraph batched = batch_graph(graph, 0, in, out);
    verify(batched.graph);
    for (ValueId v : batched.graph.outputs()) EXPECT_EQ(batched.graph.type(v).elems(), 0);
  }
}

// A product of a batch is one product, without a copy: the batch is a batch axis, or a free one.
TEST(Batch, ProductsStayProducts) {
  for (const Sample& sample : testing::samples()) {
    if (sample.op != OpKind::kDotGeneral) continue;
    const Graph graph = one_op(sample);
    for (const std::vector<int64_t>& axes :
         {std::vector<int64_t>{0, 0}, {0, kUnbatched}, {kUnbatched, 0}}) {
      const BatchedGraph batched = batch_graph(graph, kSize, axes, std::vector<int64_t>{kAnyAxis});
      EXPECT_EQ(batched.graph.n_nodes(), 1u) << to_string(sample);
    }
  }
}

}  // namespace
}  // namespace stow
