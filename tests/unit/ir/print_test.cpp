#include <gtest/gtest.h>

#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "tests/unit/ir/ir_samples.h"

namespace stow {
namespace {

using testing::every_op;
using testing::sample_policy;

TEST(GraphText, RoundTripsEveryOpAndParameter) {
  const Graph g = every_op();
  const std::string text = print(g);
  const Result<GraphPtr> back = parse_graph(text, "every_op.txt", sample_policy);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(print(**back), text);
  EXPECT_TRUE(equal(g, **back));
  EXPECT_EQ(structural_hash(g), structural_hash(**back));
}

TEST(GraphText, ReadsAsDocumented) {
  const std::string text =
      "graph(%0: f32[8,64] \"x\", %1: bf16<pinned_host>[]~) {\n"
      "  region 0 {parent=none, policy=none, prevent_cse=false}\n"
      "  %2 = constant() {type=f32[4], data=0.1} : f32[4]\n"
      "  %3, %4 = sort(%0, %0) {axis=-1, flag=true} region 0 backward : f32[8,64], f32[8,64]"
      " @\"mlp/up\" \"m.cpp\":7\n"
      "  return %4, %0\n"
      "}\n";
  const auto g = parse_graph(text, "t");
  ASSERT_TRUE(g.ok()) << g.error();
  EXPECT_EQ(print(**g), text);
  const Node& sort = (*g)->nodes()[1];
  EXPECT_EQ(to_string(sort.provenance), "mlp/up (m.cpp:7)");
  EXPECT_TRUE(sort.backward);
  EXPECT_EQ(sort.region, RegionId(0u));
  EXPECT_TRUE((*g)->type(ValueId(1u)).weak);
  EXPECT_EQ((*g)->type(ValueId(1u)).kind, MemoryKind::kPinnedHost);
}

TEST(GraphText, OrderBlanksCommentsAndDefaultsAreFree) {
  const auto g = parse_graph(
      "// a comment\ngraph ( %0 : f32 [ 4 ] ) { // more\n"
      "%1 = dot_general(%0,%0){out=f64,rhs_contract=[0],lhs_contract=[0]}:f64[] return%1}",
      "t");
  ASSERT_TRUE(g.ok()) << g.error();
  EXPECT_EQ((*g)->nodes()[0].as<DotParams>(), (DotParams{{0}, {0}, {}, {}, DType::kF64}));
}

TEST(GraphText, PrintNeverFailsOnMalformedGraphs) {
  Graph g;
  g.add_node({.op = OpKind::kScan, .params = NameParams{"x"}, .graphs = {nullptr}}, {});
  g.mutable_node(NodeId(0u)).n_results = 1;
  EXPECT_EQ(print(g), "graph() {\n  %0 = scan() {name=\"x\"} : ?\n    graph none\n  return\n}\n");
}

TEST(GraphText, ManyInputsStandOneALine) {
  Graph g;
  for (int i = 0; i < 3; ++i) g.add_input({}, std::string(40, 'x'));
  const std::string text = print(g), x(40, 'x');
  EXPECT_EQ(text, fmt::format("graph(\n    %0: f32[] \"{0}\",\n    %1: f32[] \"{0}\",\n"
                              "    %2: f32[] \"{0}\") {{\n  return\n}}\n",
                              x));
  EXPECT_TRUE(parse_graph(text, "t").ok());
}

// Reads one element as dtype and prints it again.
std::string element(std::string_view dtype, std::string_view text) {
  const auto g = parse_graph(
      fmt::format("graph() {{ %0 = constant() {{type={0}[], data={1}}} : {0}[] return }}", dtype,
                  text),
      "t");
  if (!g.ok()) return "error";
  const std::string printed = print(**g);
  const size_t start = printed.find("data=") + 5;
  return printed.substr(start, printed.find('}', start) - start);
}

TEST(GraphText, ElementsRoundToNearestEvenAndKeepTheirBits) {
  EXPECT_EQ(element("f32", "0.1"), "0.1");
  EXPECT_EQ(element("f32", "hex\"cdcccc3d\""), "0.1");
  EXPECT_EQ(element("f32", "-0"), "-0");
  EXPECT_EQ(element("f32", "nan"), "nan");
  EXPECT_EQ(element("f32", "hex\"010080ff\""), "hex\"010080ff\"");
  EXPECT_EQ(element("f32", "1e39"), "error");
  EXPECT_EQ(element("f16", "2049"), "2048");  // a tie, to even
  EXPECT_EQ(element("f16", "2051"), "2052");  // a tie, to even
  EXPECT_EQ(element("f16", "65519"), "65504");
  EXPECT_EQ(element("f16", "65520"), "error");
  EXPECT_EQ(element("f16", "6e-8"), "5.9604645e-08");
  EXPECT_EQ(element("bf16", "1.00390625"), "1");  // a tie, to even
  EXPECT_EQ(element("bf16", "-inf"), "-inf");
  EXPECT_EQ(element("u8", "256"), "error");
  EXPECT_EQ(element("u8", "-1"), "error");
  EXPECT_EQ(element("i32", "1.5"), "error");
  EXPECT_EQ(element("bool", "true"), "true");
  EXPECT_EQ(element("bool", "1"), "error");
}

TEST(GraphText, EveryPrefixOfATextIsRefused) {
  const std::string text = print(every_op());
  for (size_t n = 0; n + 2 < text.size(); n += n < 4000 ? 1 : 97)
    EXPECT_FALSE(parse_graph(std::string_view(text).substr(0, n), "f", sample_policy).ok()) << n;
}

TEST(ProvenanceOfNodes, PrintsAndParsesBackWithThePass) {
  const std::string text =
      "graph(%0: f32[4]) {\n"
      "  %1 = exp(%0) : f32[4] @\"mlp\" \"m.cpp\":7 by vjp\n"
      "  %2 = exp(%1) backward : f32[4] @\"\" by residuals\n"
      "  %3 = exp(%2) : f32[4] @\"mlp\" \"m.cpp\":7\n"
      "  return %3\n"
      "}\n";
  const auto g = parse_graph(text, "t");
  ASSERT_TRUE(g.ok()) << g.error();
  EXPECT_EQ(print(**g), text);
  EXPECT_EQ(to_string((*g)->nodes()[0].provenance), "mlp (m.cpp:7) [vjp]");
  EXPECT_EQ(source_path((*g)->nodes()[0].provenance), "mlp (m.cpp:7)");
  EXPECT_EQ(to_string((*g)->nodes()[1].provenance), "[residuals]");
  EXPECT_EQ(to_string((*g)->nodes()[2].provenance), "mlp (m.cpp:7)");
  const auto wrong = parse_graph(
      "graph(%0: f32[4]) {\n  %1 = exp(%0) : f32[4] @\"\" by magic\n  return %1\n}\n", "t");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(
      wrong.error(),
      "t:2:32: there is no pass 'magic'; the passes are traced, vjp, vmap, residuals, unroll, "
      "tiles, transfers, lower");
}

}  // namespace
}  // namespace stow
