// What functions over arrays record, seen through lower().
#include "stowage/api/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Layer {
  Array w1, w2;
};
STOW_TREE(Layer, w1, w2);

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}
Array i32(Shape shape) {
  return Array::abstract(std::move(shape), DType::kI32);
}

std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(op_name(node.op));
  return names;
}

// The graph of a function, verified.
template <typename F, typename... Args>
Graph traced(F f, const Args&... args) {
  const auto lowered = jit(f).lower(args...);
  verify(lowered.graph());
  return lowered.graph();
}

std::string output_type(const Graph& graph, size_t i = 0) {
  return to_string(graph.type(graph.outputs()[i]));
}

TEST(Trace, ScalarsBecomeConstantsOfTheOtherOperandsType) {
  const Graph g = traced([](Array x) { return x * 2.0; }, Array::abstract({4}, DType::kBF16));
  EXPECT_THAT(op_names(g), ElementsAre("constant", "broadcast", "mul"));
  EXPECT_EQ(output_type(g), "bf16[4]");
}

TEST(Trace, BroadcastsWithoutMaterialisingMoreThanAsked) {
  const Graph g = traced([](Array x, Array y) { return x + y; }, f32({8, 4}), f32({4}));
  EXPECT_THAT(op_names(g), ElementsAre("broadcast", "add"));
}

TEST(Trace, MatmulOfMatricesHasNoBatchAxes) {
  const auto batch = [](Shape a, Shape b) {
    const Graph g =
        traced([](Array x, Array y) { return matmul(x, y); }, f32(std::move(a)), f32(std::move(b)));
    const Node* dot = nullptr;
    for (const Node& node : g.nodes())
      if (node.op == OpKind::kDotGeneral) dot = &node;
    return fmt::format("{} {}", output_type(g), dot->as<DotParams>().lhs_batch.size());
  };
  EXPECT_EQ(batch({2, 3, 4}, {4, 5}), "f32[2,3,5] 0");
  EXPECT_EQ(batch({4}, {4}), "f32[] 0");
  EXPECT_EQ(batch({4}, {4, 5}), "f32[5] 0");
  EXPECT_EQ(batch({3, 4}, {4}), "f32[3] 0");
  EXPECT_EQ(batch({7, 3, 4}, {7, 4, 5}), "f32[7,3,5] 1");
  EXPECT_EQ(batch({3, 4}, {7, 4, 5}), "f32[7,3,5] 0");
  EXPECT_EQ(batch({4}, {7, 4, 5}), "f32[7,5] 0");
  EXPECT_EQ(batch({7, 1, 3, 4}, {1, 6, 4, 5}), "f32[7,6,3,5] 0");
  EXPECT_EQ(batch({1, 7, 3, 4}, {1, 7, 4, 5}), "f32[1,7,3,5] 1");
}

TEST(Trace, ShapesOfEverythingElse) {
  const Array x = f32({2, 3, 4}), i = i32({5});
  const auto type = [](auto f, const auto&... args) { return output_type(traced(f, args...)); };
  EXPECT_EQ(type([](Array a) { return reshape(a, {-1, 2}); }, x), "f32[12,2]");
  EXPECT_EQ(type([](Array a) { return transpose(a); }, x), "f32[4,3,2]");
  EXPECT_EQ(type([](Array a) { return swapaxes(a, 0, -1); }, x), "f32[4,3,2]");
  EXPECT_EQ(type([](Array a) { return moveaxis(a, 0, 1); }, x), "f32[3,2,4]");
  EXPECT_EQ(type([](Array a) { return expand_dims(a, {0, -1}); }, x), "f32[1,2,3,4,1]");
  EXPECT_EQ(type([](Array a) { return squeeze(sum(a, 1, true)); }, x), "f32[2,4]");
  EXPECT_EQ(type(
                [](Array a) {
                  return concatenate({a, a.astype(DType::kF64)}, -1);
                },
                x),
            "f64[2,3,8]");
  EXPECT_EQ(type([](Array a) { return stack({a, a}, 1); }, x), "f32[2,2,3,4]");
  EXPECT_EQ(type([](Array a) { return split(a, 2, 2)[1]; }, x), "f32[2,3,2]");
  EXPECT_EQ(type([](Array a) { return tile(a, {2, 1}); }, x), "f32[2,6,4]");
  EXPECT_EQ(type([](Array a) { return repeat(a, 3, 0); }, x), "f32[6,3,4]");
  EXPECT_EQ(type([](Array a) { return a[1]; }, x), "f32[3,4]");
  EXPECT_EQ(type([](Array a) { return a.slice(2, -3, 100, 2); }, x), "f32[2,3,2]");
  EXPECT_EQ(type([](Array a) { return a.slice(2, 3, -5, -1); }, x), "f32[2,3,4]");
  EXPECT_EQ(type(
                [](Array a) {
                  return a.index({newaxis, 0, ellipsis, range(1, 3)});
                },
                x),
            "f32[1,3,2]");
  EXPECT_EQ(type([](Array a) { return pad(a, {{0, 1}, {2, 0}, {0, 0}}, 9); }, x), "f32[3,5,4]");
  EXPECT_EQ(type([](Array a) { return mean(a, {0, 2}); }, x), "f32[3]");
  EXPECT_EQ(type([](Array a) { return var(a, -1, 0, true); }, x), "f32[2,3,1]");
  EXPECT_EQ(type([](Array a) { return argmax(a, 1); }, x), "i32[2,4]");
  EXPECT_EQ(type([](Array a) { return argmin(a); }, x), "i32[]");
  EXPECT_EQ(type([](Array a) { return cumsum(a); }, x), "f32[24]");
  EXPECT_EQ(type([](Array a) { return argsort(a); }, x), "i32[2,3,4]");
  EXPECT_EQ(type([](Array a) { return logsumexp(a, {0, 1}); }, x), "f32[4]");
  EXPECT_EQ(type([](Array a) { return softmax(a); }, x), "f32[2,3,4]");
  EXPECT_EQ(type([](Array a) { return tril(a); }, x), "f32[2,3,4]");
  EXPECT_EQ(type([](Array a, Array j) { return take(a, j, 1); }, x, i), "f32[2,5,4]");
  EXPECT_EQ(type([](Array a, Array j) { return take(a, expand_dims(j, 0), 2); }, x, i),
            "f32[2,3,1,5]");
  EXPECT_EQ(type(
                [](Array a, Array j) {
                  return take_along_axis(a, reshape(j, {1, 1, 5}), 2);
                },
                x, i),
            "f32[2,3,5]");
  EXPECT_EQ(type([](Array j) { return one_hot(j, 300); }, Array::abstract({5}, DType::kU8)),
            "f32[5,300]");
  EXPECT_EQ(type([](Array a) { return dynamic_slice(a, {0, 1, 2}, {1, 1, 2}); }, x), "f32[1,1,2]");
  EXPECT_EQ(type([](Array a) { return random::normal(random::key(1), a.shape()); }, x),
            "f32[2,3,4]");
  EXPECT_EQ(type([](Array a) { return rms_norm(a, a[0][0]); }, x), "f32[2,3,4]");
  EXPECT_EQ(type([](Array a) { return layer_norm(a, a[0][0], a[0][0]); }, x), "f32[2,3,4]");
  EXPECT_EQ(type([](Array q, Array k) { return attention(q, k, k, {.causal = true}); },
                 f32({1, 8, 4, 16}), f32({1, 8, 2, 16})),
            "f32[1,8,4,16]");
}

TEST(Trace, EinsumMakesProductsNotLoops) {
  const auto einsummed = [](const char* spec, std::vector<Shape> shapes) {
    std::vector<Array> operands;
    for (Shape& shape : shapes) operands.push_back(f32(shape));
    const Graph g = traced([&](std::vector<Array> x) { return einsum(spec, x); }, operands);
    return fmt::format("{} {}", output_type(g), count_ops(g, OpKind::kDotGeneral, true));
  };
  EXPECT_EQ(einsummed("ij,jk->ik", {{2, 3}, {3, 4}}), "f32[2,4] 1");
  EXPECT_EQ(einsummed("bthd,bshd->bhts", {{2, 3, 4, 5}, {2, 6, 4, 5}}), "f32[2,4,3,6] 1");
  EXPECT_EQ(einsummed("ij,jk,kl", {{2, 3}, {3, 4}, {4, 5}}), "f32[2,5] 2");
  EXPECT_EQ(einsummed("ii->i", {{3, 3}}), "f32[3] 0");
  EXPECT_EQ(einsummed("ii", {{3, 3}}), "f32[] 0");
  EXPECT_EQ(einsummed("ij->ji", {{2, 3}}), "f32[3,2] 0");
  EXPECT_EQ(einsummed("...ij,...jk->...ik", {{7, 2, 3}, {3, 4}}), "f32[7,2,4] 1");
  EXPECT_EQ(einsummed("...ij,...jk", {{7, 2, 3}, {1, 3, 4}}), "f32[7,2,4] 1");
  EXPECT_EQ(einsummed("i,j->ij", {{2}, {3}}), "f32[2,3] 1");
  EXPECT_EQ(einsummed("ij,kl->", {{2, 3}, {4, 5}}), "f32[] 1");
}

TEST(Trace, ScopesAndLinesAreKept) {
  int line = 0;
  const Graph g = traced(
      [&](Array x) {
        const Scope outer("layers"), inner("mlp");
        line = __LINE__ + 1;
        return softmax(x);
      },
      f32({4}));
  ASSERT_GT(g.n_nodes(), 3u);
  for (const Node& node : g.nodes())
    EXPECT_EQ(to_string(node.provenance), fmt::format("layers/mlp (trace_test.cpp:{})", line));
}

TEST(Trace, ConcreteArraysBecomeHiddenArgumentsOnce) {
  const Array big = Array::from(std::vector<float>(100, 1.0f), {100});
  const Array small = Array(3.0f);
  const auto lowered =
      jit([&](Array x) { return x * big + big * small; }, {.name = "step"}).lower(f32({100}));
  EXPECT_THAT(lowered.graph().input_names(), ElementsAre("0", "captured/0"));
  EXPECT_EQ(count_ops(lowered.graph(), OpKind::kConstant, true), 1);
}

TEST(Trace, InnerTracesCaptureFromAllOuterOnes) {
  const Array big = Array::from(std::vector<float>(100, 1.0f), {100});
  const Graph g = traced(
      [&](Array x, Array xs) {
        const Array outer = x * 2;
        auto body = [&](Array c, Array v) {
          auto inner = [&](Array d, Array u) { return d + u * outer + big + v; };
          return scan(inner, c, stack({v, v}));
        };
        return scan(body, x, xs);
      },
      f32({100}), f32({3, 100}));
  EXPECT_EQ(count_ops(g, OpKind::kScan, true), 2);
  EXPECT_EQ(g.inputs().size(), 3u);
  const Node& outer_scan = g.nodes().back();
  EXPECT_EQ(outer_scan.as<ScanParams>().n_consts, 2);  // outer and big
}

TEST(Trace, ScanHasBothForms) {
  const auto types = [](const Graph& g) {
    std::string all;
    for (size_t i = 0; i < g.outputs().size(); ++i) all += output_type(g, i) + " ";
    return all;
  };
  EXPECT_EQ(types(traced(
                [](Array c, Layer xs) {
                  return scan([](Array h, Layer w) { return h * w.w1 + w.w2; }, c, xs);
                },
                f32({4}), Layer{f32({3, 4}), f32({3, 1})})),
            "f32[4] ");
  EXPECT_EQ(types(traced(
                [](Array c, Array xs) {
                  return scan([](Array h, Array x) { return std::pair(h + x, h * 2); }, c, xs,
                              {.reverse = true});
                },
                f32({}), f32({3}))),
            "f32[] f32[3] ");
  EXPECT_EQ(types(traced(
                [](Array c) {
                  return scan(
                      [](Array h, None) {
                        return std::pair(h, Layer{h, h});
                      },
                      c, None{}, {.length = 5});
                },
                f32({2}))),
            "f32[2] f32[5,2] f32[5,2] ");
  EXPECT_EQ(
      types(traced(
          [](Array xs) {
            return scan([](None, Array x) { return std::pair(None{}, x * 2); }, None{}, xs).second;
          },
          f32({3, 2}))),
      "f32[3,2] ");
}

TEST(Trace, WeakInitialCarryTakesTheBodysType) {
  const Graph g =
      traced([](Array xs) { return scan([](Array c, Array x) { return c + x; }, 0.0, xs); },
             Array::abstract({3}, DType::kBF16));
  EXPECT_EQ(output_type(g), "bf16[]");
}

TEST(Trace, CheckpointRecordsOneNodeWithItsBody) {
  const PolicyPtr policy = dots_saveable();
  const Graph g = traced(
      [&](Array x, Array w) {
        return checkpoint([&](Array h) { return sin(matmul(h, w)); }, policy,
                          {.prevent_cse = false})(x);
      },
      f32({2, 3}), f32({3, 3}));
  EXPECT_THAT(op_names(g), ElementsAre("checkpoint"));
  const auto& params = g.nodes()[0].as<CheckpointParams>();
  EXPECT_EQ(params.policy, policy);
  EXPECT_FALSE(params.prevent_cse);
  EXPECT_EQ(g.nodes()[0].operands.size(), 2u);  // the argument, then what it captured
}

TEST(Trace, CheckpointNamesReachThePolicy) {
  const Graph g = traced([](Array x) { return checkpoint_name(x, "h") * 2; }, f32({2}));
  EXPECT_EQ(g.nodes()[0].as<NameParams>().name, "h");
}

TEST(Trace, GradientHasTheTypeOfItsArgument) {
  auto loss = [](const Layer& w, const Array& x) { return sum(matmul(matmul(x, w.w1), w.w2)); };
  const Layer w{f32({3, 4}), f32({4, 5})};
  const Graph g = traced(grad(loss), w, f32({2, 3}));
  EXPECT_EQ(output_type(g, 0), "f32[3,4]");
  EXPECT_EQ(output_type(g, 1), "f32[4,5]");
  const Graph by_x = traced(grad<1>(loss), w, f32({2, 3}));
  EXPECT_EQ(output_type(by_x), "f32[2,3]");
  const Graph both = traced(value_and_grad<0, 1>(loss), w, f32({2, 3}));
  EXPECT_EQ(both.outputs().size(), 4u);
  EXPECT_EQ(output_type(both, 0), "f32[]");
  EXPECT_EQ(output_type(both, 3), "f32[2,3]");
}

TEST(Trace, GradientsNestAndSeeOuterValuesAsConstants) {
  // d/dy (d/dx (x^2 y) at x = y): the inner derivative is 2 x y, with x not y.
  auto f = [](Array y) {
    auto inner = [&](Array x) { return x * x * y; };
    return grad(inner)(y);
  };
  const Graph g = traced(grad(f), f32({}));
  EXPECT_EQ(output_type(g), "f32[]");
  EXPECT_EQ(g.inputs().size(), 1u);
}

TEST(Trace, AuxComesOutBesideTheLoss) {
  auto f = [](Array x) { return std::pair(sum(x * x), Layer{x, x * 2}); };
  const auto result = value_and_grad_aux(f)(f32({3}));
  EXPECT_EQ(result.first.second.w2.shape(), (Shape{3}));
  EXPECT_EQ(result.second.shape(), (Shape{3}));
}

TEST(Trace, IntegerLeavesGetZeroGradientsWhenAllowed) {
  auto f = [](const Layer& w) { return sum(w.w1 * w.w2); };
  const Graph g = traced(grad(f, {.allow_int = true}), Layer{f32({3}), i32({3})});
  EXPECT_EQ(output_type(g, 1), "i32[3]");
}

TEST(Trace, AnExceptionLeavesNoTraceBehind) {
  auto bad = jit([](Array x) -> Array {
    const Scope scope("deep");
    return scan([](Array, Array) -> Array { throw std::runtime_error("mine"); }, x, stack({x}));
  });
  EXPECT_THROW(bad.lower(f32({2})), std::runtime_error);
  EXPECT_FALSE(is_tracing());
  EXPECT_TRUE(context().scope.empty());
  EXPECT_EQ(context().site.line, 0);
  EXPECT_EQ(bad.n_traces(), 0);
}

TEST(Trace, CrossEntropyHoldsNoOneHotProduct) {
  const Graph g =
      traced([](Array l, Array t) { return mean(cross_entropy(l, t)); },
             Array::abstract({2, 8, 100}, DType::kBF16), Array::abstract({2, 8}, DType::kU8));
  EXPECT_EQ(output_type(g), "f32[]");
  EXPECT_EQ(count_ops(g, OpKind::kDotGeneral, true), 0);
  EXPECT_EQ(count_ops(g, OpKind::kGather, true), 0);
}

}  // namespace
}  // namespace stow
