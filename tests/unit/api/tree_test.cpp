#include "stowage/api/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/api/math.h"
#include "stowage/base/inside.h"

namespace {

struct Layer {
  stow::Array w1, w2;
};
STOW_TREE(Layer, w1, w2);

struct Nothing {};
STOW_TREE(Nothing);

enum class Kind { kSmall, kLarge };
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, stow::Array> named;
  std::optional<stow::Array> bias;
  std::pair<stow::Array, std::tuple<stow::Array, Nothing>> rest;
  std::array<stow::Array, 2> two;
  stow::Static<int> heads{4};
  stow::Static<Kind> kind{Kind::kSmall};
  int not_listed = 7;
};
STOW_TREE(Model, layers, named, bias, rest, two, heads, kind);

}  // namespace

namespace stow {
namespace {

using testing::ElementsAre;

Array typed(int64_t n) {
  return Array::abstract({n});
}

Model model() {
  Model m;
  m.layers = {{typed(1), typed(2)}, {typed(3), typed(4)}};
  m.named = {{"z", typed(6)}, {"a", typed(5)}};
  m.bias = typed(7);
  m.rest = {typed(8), {typed(9), Nothing{}}};
  m.two = {typed(10), typed(11)};
  return m;
}

TEST(Tree, PartsAreLeavesAndNodesWithOrWithoutLeaves) {
  const std::tuple<Nothing, std::optional<Array>, std::vector<Array>, Static<int>> t{
      {}, typed(1), {}, {3}};
  EXPECT_THAT(part_paths_of(tree_ref(t)), ElementsAre("", "0", "1", "2", "3"));
  EXPECT_THAT(part_paths_of(tree_ref(typed(1))), ElementsAre(""));
}

TEST(Tree, PathsNameEveryLeafInOrder) {
  EXPECT_THAT(tree_paths(model()),
              ElementsAre("layers/0/w1", "layers/0/w2", "layers/1/w1", "layers/1/w2", "named/a",
                          "named/z", "bias", "rest/0", "rest/1/0", "two/0", "two/1"));
  EXPECT_THAT(tree_paths(typed(1)), ElementsAre(""));
  EXPECT_THAT(tree_paths(Nothing{}), ElementsAre());
  EXPECT_THAT(tree_paths(None{}), ElementsAre());
}

TEST(Tree, UnflattenPutsLeavesBackWhereFlattenFoundThem) {
  const Model m = model();
  std::vector<Array> leaves = tree_leaves(m);
  ASSERT_EQ(leaves.size(), 11u);
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_EQ(leaves[i].size(), static_cast<int64_t>(i + 1));
  for (Array& leaf : leaves) leaf = typed(leaf.size() * 100);
  Model copy = tree_unflatten(m, leaves);
  EXPECT_EQ(copy.named["z"].size(), 600);
  EXPECT_EQ(copy.two[1].size(), 1100);
  EXPECT_EQ(copy.not_listed, 7);
  EXPECT_EQ(m.two[1].size(), 11);  // the prototype is untouched
}

TEST(Tree, StructureTellsTreesApart) {
  const Model m = model();
  const auto changed = [&](auto change) {
    Model other = m;
    change(other);
    return tree_structure(other) != tree_structure(m);
  };
  EXPECT_FALSE(changed([](Model& o) { o.layers[0].w1 = typed(99); }));
  EXPECT_FALSE(changed([](Model& o) { o.not_listed = 8; }));
  EXPECT_TRUE(changed([](Model& o) { o.layers.pop_back(); }));
  EXPECT_TRUE(changed([](Model& o) { o.bias.reset(); }));
  EXPECT_TRUE(changed([](Model& o) { o.named["b"] = typed(1); }));
  EXPECT_TRUE(changed([](Model& o) { o.heads.value = 5; }));
  EXPECT_TRUE(changed([](Model& o) { o.kind.value = Kind::kLarge; }));
  // Keys cannot imitate structure.
  const std::map<std::string, Array> tricky = {{"a*><1:b", typed(1)}};
  const std::map<std::string, Array> plain = {{"a", typed(1)}, {"b", typed(1)}};
  EXPECT_NE(tree_structure(tricky), tree_structure(plain));
  // A list of two, a pair and an array of two are three things.
  const std::vector<Array> list = {typed(1), typed(1)};
  EXPECT_NE(tree_structure(list), tree_structure(std::pair(typed(1), typed(1))));
}

TEST(Tree, MapTakesTreesOfOneStructure) {
  const Layer a{typed(1), typed(2)}, b{typed(10), typed(20)};
  const Layer sum =
      tree_map([](const Array& x, const Array& y) { return typed(x.size() + y.size()); }, a, b);
  EXPECT_EQ(sum.w1.size(), 11);
  EXPECT_EQ(sum.w2.size(), 22);
  const Layer named = tree_map_with_path(
      [](const std::string& path, const Array& x) { return path == "w2" ? typed(0) : x; }, a);
  EXPECT_EQ(named.w1.size(), 1);
  EXPECT_EQ(named.w2.size(), 0);
}

TEST(Tree, ConceptKnowsWhatIsATree) {
  static_assert(Tree<Array> && Tree<Model> && Tree<const Layer&> && Tree<std::tuple<>>);
  static_assert(!Tree<int> && !Tree<std::vector<int>> && !Tree<std::map<int, Array>>);
  static_assert(!Tree<std::pair<Array, float>>);
}

}  // namespace
}  // namespace stow
