// Small all_reduces of a program of one position: which become one, and that no bit changes.
#include "stowage/passes/combine_all_reduces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/ops/verify.h"
#include "tests/support/evaluate_on_mesh.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::PerPosition;

const MeshShape kMesh{{"data", "model"}, {3, 2}};

// Builds graphs of inputs that are f32 arrays, reductions of them, and outputs.
struct Program {
  Graph graph;
  GraphBuilder b{graph};

  Val input(Shape shape) { return Val(b, graph.add_input({DType::kF32, std::move(shape)})); }
  Val reduced(const Val& x, MeshAxes axes = {0}, ReduceKind kind = ReduceKind::kSum) {
    return b.add1(OpKind::kAllReduce,
                  CollectiveParams{.mesh = kMesh, .axes = std::move(axes), .kind = kind}, {x});
  }
  Graph with_outputs(std::vector<Val> outputs) {
    std::vector<ValueId> ids;
    for (const Val& v : outputs) ids.push_back(v.id());
    graph.set_outputs(std::move(ids));
    return std::move(graph);
  }
};

PerPosition random_inputs(const Graph& graph) {
  std::mt19937 rng(3);
  PerPosition inputs;
  for (int64_t p = 0; p < kMesh.size(); ++p) {
    inputs.emplace_back();
    for (ValueId v : graph.inputs()) {
      std::vector<float> values(static_cast<size_t>(graph.type(v).elems()));
      for (float& x : values) x = std::uniform_real_distribution(-1.0f, 1.0f)(rng);
      Bytes bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      inputs.back().push_back(std::move(bytes));
    }
  }
  return inputs;
}

// How many all_reduces are left; the values are those of the graph, bit for bit.
int64_t left_of(const Graph& graph) {
  const Graph combined = combine_all_reduces(graph);
  verify(combined);
  const PerPosition inputs = random_inputs(graph);
  EXPECT_EQ(testing::evaluate_on_mesh(combined, kMesh, inputs),
            testing::evaluate_on_mesh(graph, kMesh, inputs));
  for (size_t o = 0; o < graph.outputs().size(); ++o)
    EXPECT_EQ(combined.type(combined.outputs()[o]), graph.type(graph.outputs()[o]));
  return count_ops(combined, OpKind::kAllReduce, true);
}

TEST(CombineAllReduces, ThoseOfOneGroupAreOne) {
  Program p;
  const Val a = p.input({5}), b = p.input({2, 3}), c = p.input({});
  const Val x = p.reduced(a), y = p.reduced(b), z = p.reduced(sin(c));
  EXPECT_EQ(left_of(p.with_outputs({x, exp(y), z})), 1);
}

TEST(CombineAllReduces, OthersStay) {
  Program p;
  const Val a = p.input({5}), b = p.input({7});
  EXPECT_EQ(
      left_of(p.with_outputs({p.reduced(a), p.reduced(b, {1}), p.reduced(b, {0}, ReduceKind::kMax),
                              p.reduced(convert(b, DType::kBF16)), p.reduced(a, {0, 1})})),
      5);
}

TEST(CombineAllReduces, NothingWaitsThatDidNot) {
  Program p;
  const Val a = p.input({5}), b = p.input({5});
  // The second needs the first; the third comes when the first has been read.
  const Val first = p.reduced(a), second = p.reduced(sin(first)), third = p.reduced(b);
  EXPECT_EQ(left_of(p.with_outputs({first, second, third})), 2);
  Program q;
  const Val c = q.input({5}), d = q.input({5});
  const Val read = exp(q.reduced(c));
  EXPECT_EQ(left_of(q.with_outputs({read, q.reduced(d)})), 2);
}

TEST(CombineAllReduces, LargeOnesStayAndSetsAreBounded) {
  constexpr int64_t kMost = kSmallReduceBytes / 4;
  Program p;
  const Val a = p.input({kMost + 1}), b = p.input({3});
  EXPECT_EQ(left_of(p.with_outputs({p.reduced(a), p.reduced(b), p.reduced(a)})), 3);
  Program q;
  const Val c = q.input({kMost});
  std::vector<Val> outputs;
  for (int i = 0; i < 10; ++i) outputs.push_back(q.reduced(c * sin(c)));
  EXPECT_EQ(left_of(q.with_outputs(outputs)), 10 * kSmallReduceBytes / kCombinedReduceBytes + 1);
}

TEST(CombineAllReduces, OfTwoPassesThoseOfTheBackwardOneAlone) {
  Program p;
  const Val a = p.input({5}), b = p.input({5});
  const Val x = p.reduced(a), y = p.reduced(b);
  p.b.backward = true;
  const Val u = p.reduced(cos(a)), v = p.reduced(cos(b));
  p.b.backward = false;
  const Val s = p.reduced(exp(a)), t = p.reduced(exp(b));  // behind both, as an optimizer's
  EXPECT_EQ(left_of(p.with_outputs({x, y, u, v, s, t})), 4);
}

TEST(CombineAllReduces, GoesIntoTheBodiesOfLoops) {
  auto body = std::make_shared<Graph>();
  {
    GraphBuilder b(*body);
    const Val carry(b, body->add_input({DType::kF32, {4}})),
        slice(b, body->add_input({DType::kF32, {4}}));
    const auto reduced = [&](const Val& x) {
      return b.add1(OpKind::kAllReduce, CollectiveParams{.mesh = kMesh, .axes = {0}}, {x});
    };
    const Val x = reduced(carry * slice), y = reduced(sin(slice));
    body->set_outputs({(carry + slice).id(), x.id(), y.id()});
  }
  Program p;
  const Val init = p.input({4}), stack = p.input({3, 4});
  const std::vector<Val> results = p.b.add(
      OpKind::kScan, ScanParams{.length = 3, .n_carries = 1, .in_axes = {0}, .out_axes = {0, 0}},
      std::vector{init, stack}, {body});
  EXPECT_EQ(left_of(p.with_outputs(results)), 1);
}

}  // namespace
}  // namespace stow
