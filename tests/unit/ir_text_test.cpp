#include <gtest/gtest.h>

#include <random>

#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "tests/unit/ir_samples.h"

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

// A graph of one input whose body is `line`.
std::string in_graph(std::string_view line) {
  return fmt::format("graph(%0: f32[4]) {{\n  {}\n  return %0\n}}\n", line);
}

struct ErrorCase {
  std::string text, error;
};

TEST(ParseError, NamesThePlaceAndWhatWasExpected) {
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "graph() { checkpoint() : () ";
  const ErrorCase cases[] = {
      {"", "f:1:1: expected 'graph', found end of text"},
      {"graph", "f:1:6: expected '(', found end of text"},
      {"graph(0", "f:1:7: expected an input such as %0, found '0'"},
      {"graph(%0 f32[]", "f:1:10: expected ':', found 'f32'"},
      {"graph(%0: f31[])", "f:1:11: expected a type such as f32[8,64], found 'f31'"},
      {"graph(%0: f32)", "f:1:14: expected '[', found ')'"},
      {"graph(%0: f32<tape>[])", "f:1:15: expected device, pinned_host or disk, found 'tape'"},
      {"graph(%0: f32[-1])", "f:1:15: expected an extent from 0 to 281474976710656, found '-1'"},
      {"graph(%0: f32[1,])", "f:1:17: expected an extent, found ']'"},
      {"graph(%0: f32[1 2])", "f:1:17: expected ',' or ']', found '2'"},
      {"graph(%0: f32[9999999999,0,99999999])", "f:1:28: the array is larger than 2^56 bytes"},
      {"graph(%1: f32[]) { return }",
       "f:1:7: expected %0 as the number of the next input, found %1"},
      {"graph(%4294967295: f32[]) { return }",
       "f:1:7: expected a value number below 4294967295, found '%4294967295'"},
      {"graph() { return } graph", "f:1:20: expected end of text after the graph, found 'graph'"},
      {"graph() { return %0 }", "f:1:18: %0 is not defined before its use"},
      {in_graph("%1 = frob(%0) : f32[4]"), "f:2:8: expected the name of an op, found 'frob'"},
      {in_graph("frob"), "f:2:3: expected a node, 'return' or a region, found 'frob'"},
      {in_graph("%2 = exp(%0) : f32[4]"),
       "f:2:3: expected %1 as the number of the next value, found '%2'"},
      {in_graph("%1 exp(%0)"), "f:2:6: expected ',' or '=', found 'exp'"},
      {in_graph("%1 = exp(%1) : f32[4]"), "f:2:12: %1 is not defined before its use"},
      {in_graph("%1 = exp(%0"), "f:3:3: expected ',' or ')', found 'return'"},
      {in_graph("%1 = exp(%0)"),
       "f:3:3: expected ':' and the types of the results, found 'return'"},
      {in_graph("%1 = exp(%0) : ()"), "f:2:18: expected 1 result types, found 0"},
      {in_graph("%1 = exp(%0) : f32[4], f32[4]"), "f:2:18: expected 1 result types, found 2"},
      {in_graph("%1 = exp(%0) {} : f32[4]"), "f:2:16: exp takes no parameters"},
      {in_graph("%1 = cumsum(%0) {axe=0} : f32[4]"), "f:2:20: cumsum has no parameter 'axe'"},
      {in_graph("%1 = cumsum(%0) {axis=0, axis=1} : f32[4]"), "f:2:28: axis is given twice"},
      {in_graph("%1 = cumsum(%0) {axis=x} : f32[4]"), "f:2:25: expected an integer, found 'x'"},
      {in_graph("%1 = cumsum(%0) {axis=1.5} : f32[4]"), "f:2:25: expected an integer, found '1.5'"},
      {in_graph("%1 = cumsum(%0) {axis=99999999999999999999} : f32[4]"),
       "f:2:25: expected an integer from -281474976710656 to 281474976710656, found "
       "'99999999999999999999'"},
      {in_graph("%1 = cumsum(%0) {flag=1} : f32[4]"), "f:2:25: expected true or false, found '1'"},
      {in_graph("%1 = convert(%0) {dtype=f3} : f32[4]"),
       "f:2:27: expected a dtype such as f32, found 'f3'"},
      {in_graph("%1 = name(%0) {name=x} : f32[4]"),
       "f:2:23: expected a string in quotes, found 'x'"},
      {in_graph("%1 = name(%0) {name=\"a\\n\"} : f32[4]"),
       "f:2:25: expected \\\", \\\\ or \\xHH (lower-case hex)"},
      {in_graph("%1 = name(%0) {name=\"a} : f32[4]"), "f:2:23: expected a closing \" on this line"},
      {in_graph("%1 = constant() {data=1} : f32[4]"),
       "f:2:25: expected type= before data=, found '1'"},
      {in_graph("%1 = constant() {type=f32[4]} : f32[4]"),
       "f:2:19: expected 1 or 4 elements in a constant f32[4], found 0 bytes"},
      {in_graph("%1 = constant() {type=f32[4], data=[1,2,3]} : f32[4]"),
       "f:2:19: expected 1 or 4 elements in a constant f32[4], found 12 bytes"},
      {in_graph("%1 = constant() {type=i8[], data=300} : i8[]"),
       "f:2:36: expected a number that fits i8, found '300'"},
      {in_graph("%1 = constant() {type=i8[], data=hex\"7\"} : i8[]"),
       "f:2:39: expected an even number of hex digits, found 1"},
      {in_graph("%1 = constant() {type=i8[], data=hex\"7G\"} : i8[]"),
       "f:2:41: expected lower-case hex digits"},
      {in_graph("%1 = exp(%0) region 0 : f32[4]"), "f:2:23: this graph lists no regions"},
      {in_graph("region 1 {}"), "f:2:10: expected 0 as the number of the next region, found 1"},
      {in_graph("region 0 {parent=0}"),
       "f:2:20: expected none (a parent comes earlier in the list), found '0'"},
      {in_graph("region 0 {} region 1 {parent=1}"),
       "f:2:32: expected none or an earlier region from 0 to 0, found '1'"},
      {in_graph("region 0 {} %1 = exp(%0) region 1 : f32[4]"),
       "f:2:35: expected the number of a region from 0 to 0, found '1'"},
      {in_graph("region 0 {policy=\"frob\"}"), "f:2:20: no policy has the name \"frob\""},
      {in_graph("checkpoint() : ()"),
       "f:3:3: expected the nested graph of checkpoint, found 'return'"},
      {in_graph("%1 = exp(%0) : f32[4] graph() {return}"),
       "f:2:25: exp takes 0 nested graphs and no more"},
      {in_graph("%1 = exp(%0) : f32[4] @mlp"),
       "f:2:26: expected the scope, in quotes, found 'mlp'"},
      {in_graph("%1 = exp(%0) : f32[4] @\"mlp\" \"a.cpp\""), "f:3:3: expected ':', found 'return'"},
      {in_graph("%1 = exp(%0) : f32[4] @\"\" \"a\\x00\":1"),
       "f:2:29: expected a file name without \\x00"},
      {in_graph("$"), "f:2:3: expected a token, found '$'"},
      {in_graph("\x01"), "f:2:3: expected a token, found byte 0x01"},
      {in_graph("% 1"), "f:2:3: expected a number after %"},
      {deep, "f:1:1793: graphs are nested more than 64 deep"},
  };
  for (const ErrorCase& c : cases) {
    const auto result = parse_graph(c.text, "f", sample_policy);
    ASSERT_FALSE(result.ok()) << c.text;
    EXPECT_EQ(result.error(), c.error) << c.text;
  }
}

TEST(ParseError, EveryPrefixOfATextIsRefused) {
  const std::string text = print(every_op());
  for (size_t n = 0; n + 2 < text.size(); n += n < 4000 ? 1 : 97)
    EXPECT_FALSE(parse_graph(std::string_view(text).substr(0, n), "f", sample_policy).ok()) << n;
}

// Damaged texts either fail with a place or give a graph whose text is a fixed point.
TEST(ParseError, MutationsNeverCrash) {
  std::mt19937 random(20240601);
  const std::string text = print(every_op());
  const std::string_view pieces[] = {
      "%",   "-1", "\"", "{",     "}",     "[",   "]",      "(",
      ")",   ",",  "=",  "\\",    "graph", "\n",  "region", "999999999999",
      "inf", "//", "%0", "f32[]", "hex\"", "none"};
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int n_ok = 0;
  for (int round = 0; round < 3000; ++round) {
    const size_t start = below(text.size());  // a window keeps the rounds cheap
    const std::string_view head = "graph(%0: f32[8,64], %1: i32[]) {\n";
    std::string damaged = round % 8 ? std::string(head) + text.substr(start, 400) : text;
    for (size_t i = below(4) + 1; i > 0; --i) {
      const size_t at = below(damaged.size()), n = below(8);
      switch (below(4)) {
        case 0:
          damaged.erase(at, n);
          break;
        case 1:
          damaged.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 2:
          damaged[at] = static_cast<char>(below(256));
          break;
        case 3:
          damaged.insert(at, damaged.substr(below(damaged.size()), n * 8));
          break;
      }
    }
    const auto result = parse_graph(damaged, "f", sample_policy);
    if (!result.ok()) {
      EXPECT_EQ(result.error().rfind("f:", 0), 0u);
      continue;
    }
    ++n_ok;
    const std::string once = print(**result);
    const auto again = parse_graph(once, "f", sample_policy);
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(print(**again), once);
  }
  EXPECT_GT(n_ok, 0);
}

}  // namespace
}  // namespace stow
