#include "stowage/ir/utilities.h"

#include <gtest/gtest.h>

#include "tests/unit/ir/ir_samples.h"

namespace stow {
namespace {

using testing::every_op;
using testing::sample_policy;

GraphPtr read(std::string_view text) {
  auto graph = parse_graph(text, "t", sample_policy);
  EXPECT_TRUE(graph.ok()) << graph.error();
  return graph.ok() ? *graph : std::make_shared<Graph>();
}

TEST(GraphEqual, SeesEveryDifferenceOfMeaning) {
  const std::string base =
      "graph(%0: f32[4] \"x\", %1: f32[4]) { region 0 {policy=\"dots\"}\n"
      "%2 = cumsum(%0) {axis=0} region 0 : f32[4] @\"a\"\n"
      "%3, %4, %5 = attention(%0, %0, %1) {scale=0} : f32[4], f32[4], f32[4]\n"
      "%6 = checkpoint(%0) : f32[4] graph(%0: f32[4]) { %1 = exp(%0) : f32[4] return %1 }\n"
      "return %2, %6 }";
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = base;
    text.replace(text.find(from), from.size(), to);
    return read(text);
  };
  const GraphPtr graph = read(base);
  EXPECT_TRUE(equal(*graph, *read(base)));
  EXPECT_EQ(structural_hash(*graph), structural_hash(*read(base)));
  for (auto [from, to] :
       {std::pair{"\"x\"", "\"y\""}, {"@\"a\"", ""}, {"%1: f32[4]", "%1: f32[4]~"}})
    EXPECT_TRUE(equal(*graph, *with(from, to))) << to;
  for (auto [from, to] : {std::pair{"policy=\"dots\"", "policy=none"},
                          {"{axis=0}", "{axis=1}"},
                          {" region 0 :", " :"},
                          {" : f32[4] @", " backward : f32[4] @"},
                          {"f32[4] @", "f16[4] @"},
                          {"scale=0", "scale=-0"},
                          {"cumsum", "concatenate"},
                          {"%0, %0, %1", "%0, %1, %1"},
                          {"exp", "log"},
                          {"return %1", "return %0"},
                          {"return %2", "return %3"},
                          {"%1: f32[4]", "%1: f32<disk>[4]"}}) {
    const GraphPtr other = with(from, to);
    EXPECT_FALSE(equal(*graph, *other)) << to;
    EXPECT_NE(structural_hash(*graph), structural_hash(*other)) << to;
  }
}

TEST(GraphUtilities, CountOps) {
  const Graph graph = every_op();
  EXPECT_EQ(count_ops(graph, OpKind::kExp, true), 1);
  EXPECT_EQ(count_ops(graph, OpKind::kConstant, false), 1);
  EXPECT_GT(count_ops(graph, OpKind::kConstant, true), 500);
  EXPECT_EQ(count_ops(graph, OpKind::kCheckpoint, true), 9);  // itself, and 1, 1, 1, 2, 3 nested
}

TEST(GraphUtilities, UsersListEveryUseInOrder) {
  const GraphPtr graph = read(
      "graph(%0: f32[], %1: f32[]) { %2 = add(%0, %0) : f32[]\n %3 = select(%0, %2, %0) : f32[]\n"
      "return %3 }");
  const Users table = users(*graph);
  const auto uses = [&](size_t value) {
    std::string text;
    for (const Use& use : table.of(ValueId(value)))
      text += fmt::format("{}.{} ", use.node.value, use.operand);
    return text;
  };
  EXPECT_EQ(uses(0), "0.0 0.1 1.0 1.2 ");
  EXPECT_EQ(uses(1), "");
  EXPECT_EQ(uses(2), "1.1 ");
  EXPECT_EQ(uses(3), "");
}

}  // namespace
}  // namespace stow
