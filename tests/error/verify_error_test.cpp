#include <gtest/gtest.h>

#include "stowage/ir/fields.h"
#include "stowage/ir/parse.h"
#include "stowage/ops/verify.h"

namespace stow {
namespace {

// What verify says of a graph; empty if nothing.
std::string verdict(const Graph& graph) {
  try {
    verify(graph);
  } catch (const TraceError& e) {
    return e.what();
  }
  return "";
}

std::string verdict(std::string_view text) {
  const auto graph = parse_graph(text, "f");
  return graph.ok() ? verdict(**graph) : graph.error();
}

// A graph of two inputs whose body is `line`.
std::string in_graph(std::string_view line) {
  return fmt::format("graph(%0: f32[4], %1: i32[]) {{\n  {}\n  return %0\n}}\n", line);
}

TEST(VerifyError, NamesTheOpAndTheNode) {
  struct Case {
    std::string text, error;
  };
  const Case cases[] = {
      {in_graph("%2 = exp(%0) : f32[4]"), ""},
      {in_graph("%2 = exp(%0) : f32[5]"),
       "[exp] result 0 is f32[5], its type rule gives f32[4]\n  in %2 = exp(%0) : f32[5]"},
      {in_graph("%2 = exp(%0) : f32<disk>[4]"),
       "[exp] result 0 is f32<disk>[4], its type rule gives f32[4]\n"
       "  in %2 = exp(%0) : f32<disk>[4]"},
      {in_graph("%2 = exp(%1) : i32[] @\"mlp\" \"m.cpp\":3"),
       "[exp] needs a float dtype, got i32[]\n  in %2 = exp(%1) : i32[] @\"mlp\" \"m.cpp\":3"},
      {in_graph("%2 = add(%0) : f32[4]"),
       "[add] takes 2 operands, got 1\n  in %2 = add(%0) : f32[4]"},
      {in_graph("exp(%0) : ()"), "[exp] has 0 results, its type rule gives 1\n  in exp(%0) : ()"},
      {in_graph("%2, %3 = exp(%0) : f32[4], f32[4]"),
       "[exp] has 2 results, its type rule gives 1\n  in %2, %3 = exp(%0) : f32[4], f32[4]"},
      {in_graph("%2 = scan(%0) {length=3, n_carries=1} : f32[4]\n"
                "  graph(%0: f32[4]) { %1 = neg(%0) : f32[] return %1 }"),
       "[neg] result 0 is f32[], its type rule gives f32[4]\n  in %1 = neg(%0) : f32[]\n"
       "  in %2 = scan(%0) {length=3, n_consts=0, n_carries=1, reverse=false, in_axes=[], "
       "out_axes=[], n_residuals=0, unroll=1} : f32[4]"},
      {in_graph("%2 = scan(%0) {length=3, n_carries=1} : f32[4]\n"
                "  graph(%0: f32[4]) { return }"),
       "[scan] the body gives 0 outputs, 1 carries and 0 slices are needed\n"
       "  in %2 = scan(%0) {length=3, n_consts=0, n_carries=1, reverse=false, in_axes=[], "
       "out_axes=[], n_residuals=0, unroll=1} : f32[4]"},
      {in_graph("%2 = scan(%0) {length=1000000000, n_carries=1, unroll=0} : f32[4]\n"
                "  graph(%0: f32[4]) { %1 = neg(%0) : f32[4] return %1 }"),
       "[scan] unrolled by 1000000000 it has more than 1048576 nodes\n"
       "  in %2 = scan(%0) {length=1000000000, n_consts=0, n_carries=1, reverse=false, in_axes=[], "
       "out_axes=[], n_residuals=0, unroll=0} : f32[4]"},
      {in_graph(
           "%2 = scan(%0) {length=1000, n_carries=1, unroll=9000} : f32[4]\n"
           "  graph(%0: f32[4]) { %1 = scan(%0) {length=1000, n_carries=1, unroll=1000} : f32[4]\n"
           "    graph(%0: f32[4]) { %1 = neg(%0) : f32[4] return %1 }\n"
           "  return %1 }"),
       "[scan] unrolled by 9000 it has more than 1048576 nodes\n"
       "  in %2 = scan(%0) {length=1000, n_consts=0, n_carries=1, reverse=false, in_axes=[], "
       "out_axes=[], n_residuals=0, unroll=9000} : f32[4]"},
      {in_graph("%2 = scan(%0) {length=1000, n_carries=1, unroll=0} : f32[4]\n"
                "  graph(%0: f32[4]) { %1 = neg(%0) : f32[4] return %1 }"),
       ""},
  };
  for (const Case& c : cases) EXPECT_EQ(verdict(c.text), c.error) << c.text;
}

TEST(VerifyError, LongNodesAreCut) {
  const std::string error = verdict(
      in_graph("%2 = constant() {type=u8[400], data=hex\"" + std::string(800, '0') + "\"} : u8[]"));
  EXPECT_EQ(error.rfind("[constant] result 0 is u8[], its type rule gives u8[400]\n  in %2", 0),
            0u);
  EXPECT_LT(error.size(), 350u);
}

// A graph with a few nodes, for breaking what no text can break.
Graph small() {
  const auto graph = parse_graph(
      "graph(%0: f32[4]) {\n region 0 {}\n region 1 {parent=0}\n %1 = exp(%0) : f32[4]\n"
      " %2 = neg(%1) region 1 : f32[4]\n"
      " %3 = checkpoint(%2) : f32[4] graph(%0: f32[4]) { return %0 }\n return %3\n}",
      "f");
  return **graph;
}

TEST(VerifyError, StructureIsChecked) {
  struct Case {
    void (*damage)(Graph&);
    std::string_view error;
  };
  const Case cases[] = {
      {[](Graph&) {}, ""},
      {[](Graph& g) { g.set_outputs({ValueId(9u)}); }, "output %9 does not exist"},
      {[](Graph& g) { g.set_outputs({ValueId()}); }, "output %4294967295 does not exist"},
      {[](Graph& g) { g.add_region({RegionId(2u)}); },
       "region 2 has the parent 2, which does not come before it"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).params = AxesParams{}; },
       "[exp] has the parameters of another op\n  in %1 = exp(%0) {axes=[]} : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).graphs = {nullptr}; },
       "[exp] takes 0 nested graphs, got 1\n  in %1 = exp(%0) : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(2u)).graphs = {nullptr}; },
       "[checkpoint] has no nested graph\n"
       "  in %3 = checkpoint(%2) {policy=none, prevent_cse=true} : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).operands = {ValueId(1u)}; },
       "[exp] operand %1 is not defined before its use\n  in %1 = exp(%1) : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).operands = {ValueId()}; },
       "[exp] operand %4294967295 is not defined before its use\n"
       "  in %1 = exp(%4294967295) : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).region = RegionId(2u); },
       "[exp] is in region 2 of 2\n  in %1 = exp(%0) region 2 : f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(2u)).n_results = 2; },
       "[checkpoint] has 2 results from %3 on, the graph 4 values\n"
       "  in %3, %4 = checkpoint(%2) {policy=none, prevent_cse=true} : f32[4], ?"},
      {[](Graph& g) { g.mutable_node(NodeId(0u)).n_results = 2; },
       "[exp] %2 is not its result 1\n  in %1, %2 = exp(%0) : f32[4], f32[4]"},
      {[](Graph& g) { g.mutable_node(NodeId(1u)).first_result = ValueId(1u); },
       "results of node 1, neg, come before those of an earlier node"},
      {[](Graph& g) {
         g.mutable_node(NodeId(2u)).n_results = 0;
         g.mutable_node(NodeId(2u)).graphs = {std::make_shared<Graph>()};
         g.mutable_node(NodeId(2u)).operands.clear();
       },
       "the graph has 4 values, its inputs and nodes 3"},
  };
  for (const Case& c : cases) {
    Graph graph = small();
    c.damage(graph);
    EXPECT_EQ(verdict(graph), c.error);
  }
}

GraphPtr nested(GraphPtr inner, int n, int copies) {
  for (int i = 0; i < n; ++i) {
    auto outer = std::make_shared<Graph>();
    for (int c = 0; c < copies; ++c)
      outer->add_node({.op = OpKind::kCheckpoint, .params = CheckpointParams{}, .graphs = {inner}},
                      {});
    inner = std::move(outer);
  }
  return inner;
}

TEST(VerifyError, DepthIsLimitedAndSharedBodiesCountOnce) {
  const auto empty = std::make_shared<Graph>();
  EXPECT_EQ(verdict(*nested(empty, 63, 2)), "");  // 2^63 paths
  EXPECT_EQ(verdict(*nested(empty, 64, 1)).rfind("graphs are nested more than 64 deep\n", 0), 0u);
  // The same body once near the top and once far down.
  auto both = std::make_shared<Graph>();
  const GraphPtr shared = nested(empty, 40, 1);
  for (const GraphPtr& body : {shared, nested(shared, 30, 1)})
    both->add_node({.op = OpKind::kCheckpoint, .params = CheckpointParams{}, .graphs = {body}}, {});
  EXPECT_EQ(verdict(*both).rfind("graphs are nested more than 64 deep\n", 0), 0u);
}

}  // namespace
}  // namespace stow
