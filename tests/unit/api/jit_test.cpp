#include "stowage/api/jit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"

namespace stow {
namespace {

using testing::ElementsAre;

struct Net {
  std::vector<Array> layers;
  Static<int> heads{1};
};
STOW_TREE(Net, layers, heads);

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}

TEST(Jit, TracesOnceAStructureAndTypes) {
  auto f = jit([](const Net& net, const Array& x) {
    Array h = x;
    for (const Array& w : net.layers) h = h * w;
    return h * static_cast<double>(net.heads.value);
  });
  const auto trace = [&](const Net& net, const Array& x) {
    f.lower(net, x);
    return f.n_traces();
  };
  EXPECT_EQ(trace({{f32({4})}}, f32({4})), 1);
  EXPECT_EQ(trace({{f32({4})}}, f32({4})), 1);
  EXPECT_EQ(trace({{f32({4}), f32({4})}}, f32({4})), 2);  // another structure
  EXPECT_EQ(trace({{f32({1})}}, f32({4})), 3);            // another shape
  EXPECT_EQ(trace({{f32({4})}, {2}}, f32({4})), 4);       // another static value
  EXPECT_EQ(trace({{f32({4})}}, Array::abstract({4}, DType::kBF16)), 5);
  EXPECT_EQ(trace({{f32({4})}}, f32({4})), 5);
}

TEST(Jit, ConcreteAndAbstractArgumentsShareATrace) {
  auto f = jit([](Array x) { return x * 2; });
  f.lower(f32({2}));
  f.lower(Array::from({1.0f, 2.0f}, {2}));
  EXPECT_EQ(f.n_traces(), 1);
}

TEST(Jit, NamesInputsByPath) {
  const auto lowered =
      jit([](const Net& net, const Array& x, const std::map<std::string, Array>& m) {
        return net.layers[1] + x + m.at("k");
      }).lower(Net{{f32({4}), f32({4})}}, f32({4}), std::map<std::string, Array>{{"k", f32({4})}});
  EXPECT_THAT(lowered.graph().input_names(), ElementsAre("0/layers/0", "0/layers/1", "1", "2/k"));
}

TEST(Jit, ResultsAreTreesOfTheirTypes) {
  const auto lowered = jit([](Array x) {
                         return std::pair(Net{{x, x + 1}}, sum(x));
                       }).lower(Array::abstract({4}, DType::kBF16));
  const auto result = lowered.result();
  EXPECT_EQ(to_string(result.first.layers[1].type()), "bf16[4]");
  EXPECT_EQ(to_string(result.second.type()), "bf16[]");
}

// A trainer that works with every optimizer names the optimizer's state, which plain SGD has none
// of.
TEST(Jit, OptionsNamePartsWithoutLeaves) {
  const auto step = [](const optim::GradientTransformation& opt) {
    return [opt](const std::map<std::string, Array>& w, const optim::OptState& state) {
      const auto [updates, next] = opt.update(w, state, w);
      return std::pair(optim::apply_updates(w, updates), next);
    };
  };
  const std::map<std::string, Array> w = {{"w", ones({3})}};
  for (const auto& opt : {optim::sgd(0.1), optim::adam(0.1)}) {
    const optim::OptState state = opt.init(w);
    const auto f = jit(step(opt), {.donate_argnums = {1},
                                   .in_shardings = {{"1", MemoryKind::kDevice}},
                                   .out_shardings = {{"1", MemoryKind::kPinnedHost}}});
    const auto [next, moments] = f(w, state);
    EXPECT_EQ(next.at("w").type().kind, MemoryKind::kDevice);
    for (const Array& leaf : tree_leaves(moments))
      EXPECT_EQ(leaf.type().kind, MemoryKind::kPinnedHost);
  }
  const std::tuple<std::optional<Array>, std::vector<Array>, std::tuple<None, Array>> parts(
      std::nullopt, std::vector<Array>(), std::tuple(None{}, ones({2})));
  const auto id = [](const auto& x) { return x; };
  for (const char* path : {"0", "1", "2", "2/0", "2/1", ""})
    EXPECT_NO_THROW(jit(id, {.out_shardings = {{path, MemoryKind::kDevice}}}).lower(parts)) << path;
  for (const char* path : {"3", "1/0", "2/2", "2/1/0", "2/"})
    EXPECT_THROW(jit(id, {.out_shardings = {{path, MemoryKind::kDevice}}}).lower(parts), TraceError)
        << path;
}

TEST(Jit, InsideATraceItIsTheFunction) {
  auto inner = jit([](Array x) { return x * 2; });
  auto outer = jit([&](Array x) { return inner(x) + inner(x); });
  EXPECT_EQ(outer.lower(f32({2})).graph().inputs().size(), 1u);
  EXPECT_EQ(inner.n_traces(), 0);
}

TEST(Jit, AbstractArgumentsGiveAbstractResults) {
  const Array y = jit([](Array x) { return matmul(x, x); })(f32({4, 4}));
  EXPECT_TRUE(y.is_abstract());
}

TEST(Jit, ScalarArgumentsAreWeakInputs) {
  auto f = jit([](Array x, Array lr) { return x * lr; });
  const auto lowered = f.lower(Array::abstract({4}, DType::kBF16), 0.1);
  EXPECT_EQ(to_string(lowered.result().type()), "bf16[4]");
  f.lower(Array::abstract({4}, DType::kBF16), 0.2);
  EXPECT_EQ(f.n_traces(), 1);
}

TEST(Jit, TextIsThePrintedGraph) {
  const std::string text = jit([](Array x) { return exp(x); }).lower(f32({4})).text();
  EXPECT_THAT(text, testing::HasSubstr("graph(%0: f32[4] \"0\") {"));
  EXPECT_THAT(text, testing::HasSubstr("%1 = exp(%0) : f32[4]"));
}

}  // namespace
}  // namespace stow
