#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stowage/autodiff/reverse.h"
#include "stowage/ir/print.h"
#include "stowage/ops/build.h"
#include "tests/ops/near.h"
#include "tests/ops/sample_values.h"
#include "tests/support/crash_note.h"
#include "tests/support/execute.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::decode;
using testing::draw;
using testing::encode;
using testing::encode_all;
using testing::Execution;
using testing::expect_near;
using testing::Numbers;
using testing::Random;
using testing::Sample;

// The op alone, or on windows: operands arrive with their axes in reverse order, or backwards.
Graph one_op(const Sample& sample, bool windows) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<Val> operands;
  for (const ArrayType& type : sample.operands) {
    const int rank = type.shape.rank();
    if (!windows || rank == 0) {
      operands.emplace_back(b, graph.add_input(type));
    } else if (rank == 1) {
      operands.push_back(reverse(Val(b, graph.add_input(type)), {0}));
    } else {
      Dims turned = type.shape.dims(), axes;
      std::reverse(turned.begin(), turned.end());
      for (int i = rank; i-- > 0;) axes.push_back(i);
      operands.push_back(transpose(Val(b, graph.add_input({type.dtype, Shape(turned)})), axes));
    }
  }
  std::vector<ValueId> outputs;
  for (const Val& v : b.add(sample.op, sample.params, operands, sample.graphs))
    outputs.push_back(v.id());
  graph.set_outputs(outputs);
  return graph;
}

bool on_device(const Sample& sample) {
  return std::all_of(sample.operands.begin(), sample.operands.end(),
                     [](const ArrayType& t) { return t.kind == MemoryKind::kDevice; });
}

// Every way to compile an op gives the bits of the plainest, and those are near the reference.
void check_values(const Sample& sample, bool windows, Random& random) {
  const Graph graph = one_op(sample, windows);
  testing::set_crash_note(print(graph));
  const std::vector<Bytes> inputs = encode_all(sample, draw(sample, random));
  const Execution judge = testing::execute(graph, {.fuse = false, .reuse = false}, inputs, 1);
  ASSERT_EQ(judge.fault, "");
  for (const bool donate : {false, true}) {
    CompileOptions options;
    if (donate) options.donated.assign(inputs.size(), true);
    const Execution real = testing::execute(graph, options, inputs, donate ? 1 : 3);
    ASSERT_EQ(real.fault, "");
    ASSERT_EQ(real.outputs, judge.outputs);
  }
  const std::vector<Bytes> want = testing::evaluate(graph, inputs);
  for (size_t o = 0; o < want.size(); ++o) {
    ASSERT_EQ(graph.type(graph.outputs()[o]), sample.results[o]);
    ASSERT_NO_FATAL_FAILURE(expect_near(graph.type(graph.outputs()[o]), judge.outputs[o], want[o]));
  }
}

TEST(Samples, RunAsTheReferenceSays) {
  Random random(11);
  for (const Sample& sample : testing::samples()) {
    if (!on_device(sample)) continue;
    for (const bool windows : {false, true}) {
      SCOPED_TRACE(to_string(sample) + (windows ? " on windows" : ""));
      ASSERT_NO_FATAL_FAILURE(check_values(sample, windows, random));
    }
  }
}

TEST(Samples, RunInEveryFloatDType) {
  Random random(12);
  int n = 0;
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16})
    for (const Sample& original : testing::samples()) {
      const Sample sample = retyped(original, DType::kF32, dtype);
      if (!on_device(sample) || sample.operands == original.operands) continue;
      try {
        if (infer_types({sample.op, sample.operands, sample.params, sample.graphs}) !=
            sample.results)
          continue;
      } catch (const TraceError&) {
        continue;
      }
      SCOPED_TRACE(to_string(sample) + " as " + std::string(dtype_name(dtype)));
      ASSERT_NO_FATAL_FAILURE(check_values(sample, false, random));
      ++n;
    }
  EXPECT_GT(n, 200);
}

// Long enough for vectors, tails, tiles and threads.
TEST(Samples, RunElementwiseOnMoreThanATile) {
  Random random(13);
  for (Sample sample : testing::samples()) {
    if (op_class(sample.op) != OpClass::kElementwise || !on_device(sample)) continue;
    SCOPED_TRACE(to_string(sample));
    for (auto* types : {&sample.operands, &sample.results})
      for (ArrayType& type : *types) type.shape = {37, 1043};
    ASSERT_NO_FATAL_FAILURE(check_values(sample, false, random));
    ASSERT_NO_FATAL_FAILURE(check_values(sample, true, random));
  }
}

class FiniteDifferences {
 public:
  FiniteDifferences(const Sample& sample, Random& random, double step, double error)
      : sample_(sample),
        step_(step),
        error_(error),
        graph_(one_op(sample, false)),
        values_(draw(sample, random)) {
    for (int i = 0; i < static_cast<int>(sample.results.size()); ++i) {
      const ArrayType& type = sample.results[static_cast<size_t>(i)];
      const std::vector<int>& only = sample.cotangent_results;
      if (!is_float(type.dtype) ||
          (!only.empty() && std::find(only.begin(), only.end(), i) == only.end()))
        continue;
      spec_.outputs.push_back(i);
      Numbers seed(static_cast<size_t>(type.elems()));
      for (double& x : seed) x = std::uniform_real_distribution(-1.0, 1.0)(random);
      seeds_.push_back(std::move(seed));
    }
    for (int i = 0; i < static_cast<int>(sample.operands.size()); ++i)
      if (is_float(sample.operands[static_cast<size_t>(i)].dtype)) spec_.wrt.push_back(i);
    program_ = compile(graph_, {}, 1);
    device_ = Device::cpu_with_capacity(int64_t{1} << 30, 1);
  }

  void check() {
    const std::vector<Numbers> gradients = reverse_mode();
    for (size_t w = 0; w < spec_.wrt.size(); ++w) {
      const auto operand = static_cast<size_t>(spec_.wrt[w]);
      for (size_t e = 0; e < gradients[w].size(); ++e) {
        const double expected = difference(operand, e), got = gradients[w][e];
        ASSERT_LE(std::fabs(got - expected), error_ * std::max(1.0, std::fabs(expected)))
            << "operand " << operand << ", element " << e << ": gradient " << got
            << ", difference quotient " << expected;
      }
    }
  }

 private:
  std::vector<Numbers> reverse_mode() {
    const Graph joint = reverse(graph_, spec_);
    testing::set_crash_note(print(joint));
    std::vector<Bytes> inputs = encode_all(sample_, values_);
    for (size_t i = 0; i < seeds_.size(); ++i)
      inputs.push_back(
          encode(sample_.results[static_cast<size_t>(spec_.outputs[i])].dtype, seeds_[i]));
    const Execution e = testing::execute(joint, {}, inputs, 1);
    EXPECT_EQ(e.fault, "");
    std::vector<Numbers> gradients;
    for (size_t i = 0; i < spec_.wrt.size(); ++i)
      gradients.push_back(decode(sample_.operands[static_cast<size_t>(spec_.wrt[i])].dtype,
                                 e.outputs[graph_.outputs().size() + i]));
    return gradients;
  }

  double difference(size_t operand, size_t element) {
    double& x = values_[operand][element];
    const double kept = x;
    x = kept + step_;
    const double above = loss();
    x = kept - step_;
    const double below = loss();
    x = kept;
    return (above - below) / (2 * step_);
  }

  // The results' inner products with the seeds.
  double loss() {
    std::vector<DeviceBufferPtr> arguments;
    for (const Bytes& input : encode_all(sample_, values_)) {
      arguments.push_back(device_->allocate(static_cast<int64_t>(input.size())));
      std::copy(input.begin(), input.end(), arguments.back()->data());
    }
    const std::vector<DeviceBufferPtr> results = program_->run(*device_, arguments);
    double sum = 0;
    for (size_t i = 0; i < seeds_.size(); ++i) {
      const auto o = static_cast<size_t>(spec_.outputs[i]);
      const Numbers y = decode(sample_.results[o].dtype,
                               {results[o]->data(), results[o]->data() + results[o]->bytes()});
      for (size_t e = 0; e < y.size(); ++e) sum += y[e] * seeds_[i][e];
    }
    return sum;
  }

  const Sample& sample_;
  double step_, error_;
  Graph graph_;
  std::vector<Numbers> values_, seeds_;
  ReverseSpec spec_;
  ExecutablePtr program_;
  DevicePtr device_;
};

TEST(Samples, HaveTheGradientsOfFiniteDifferences) {
  Random random(14);
  int n = 0;
  for (const Sample& original : testing::samples()) {
    if (!original.differentiable) continue;
    // Where f64 is refused, f32 with wider steps.
    const Sample sample = testing::widest(original);
    const bool narrow = sample.op == OpKind::kAttention || sample.op == OpKind::kAttentionGrad;
    SCOPED_TRACE(to_string(sample));
    for (int draw = 0; draw < 3; ++draw)
      ASSERT_NO_FATAL_FAILURE(
          FiniteDifferences(sample, random, narrow ? 1e-2 : 1e-5, narrow ? 1e-3 : 1e-6).check());
    ++n;
  }
  EXPECT_GT(n, 60);
}

}  // namespace
}  // namespace stow
