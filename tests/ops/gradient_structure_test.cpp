// What gradients are made of: types, the nodes they need, what they keep.
// Their numbers are checked by finite differences.
#include <gtest/gtest.h>

#include <algorithm>

#include "stowage/ops/build.h"
#include "tests/ops/samples.h"

namespace stow::testing {
namespace {

// A sample as the only node of a graph, with cotangents of ones for its float results.
struct Differentiated {
  Graph graph;
  GraphBuilder builder{graph};
  std::vector<Val> operands, results;
  Cotangents cts;
  size_t n_forward = 0;

  explicit Differentiated(const Sample& s) {
    for (const ArrayType& t : s.operands) operands.emplace_back(builder, graph.add_input(t));
    results = builder.add(s.op, s.params, operands, s.graphs);
    n_forward = graph.n_nodes();
    const Node node = graph.def(results[0].id());
    VjpContext c{node, operands, results, {}, {}};
    for (size_t i = 0; i < results.size(); ++i) {
      bool takes = is_float(results[i].dtype());
      if (!s.cotangent_results.empty())
        takes = std::count(s.cotangent_results.begin(), s.cotangent_results.end(), i) > 0;
      c.cotangents.push_back(takes ? std::optional(Val(builder, graph.add_input(results[i].type())))
                                   : std::nullopt);
    }
    for (const Val& x : operands) c.needed.push_back(is_float(x.dtype()));
    builder.backward = true;
    cts = op_def(s.op).vjp.function(c);
  }

  int count(OpKind op) const {
    int n = 0;
    for (size_t i = n_forward; i < graph.n_nodes(); ++i) n += graph.nodes()[i].op == op;
    return n;
  }
  // Whether the backward nodes read a forward value.
  bool reads(const Val& x) const {
    for (size_t i = n_forward; i < graph.n_nodes(); ++i)
      for (ValueId v : graph.nodes()[i].operands)
        if (v == x.id()) return true;
    return false;
  }
};

const Sample& sample(OpKind op, std::string_view name) {
  for (const Sample& s : samples())
    if (s.op == op && s.name == name) return s;
  STOW_CHECK(false, "no sample {}/{}", op_name(op), name);
  std::abort();
}

bool is_structure(const Sample& s) { return op_class(s.op) == OpClass::kStructure; }
bool has_float_result(const Sample& s) {
  return std::any_of(s.results.begin(), s.results.end(),
                     [](const ArrayType& t) { return is_float(t.dtype); });
}

TEST(Gradients, HaveTheTypesOfTheOperands) {
  for (const Sample& s : samples()) {
    if (is_structure(s) || !has_float_result(s)) continue;
    const bool no_f64 = s.op == OpKind::kAttention || s.op == OpKind::kAttentionGrad;
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      if (no_f64 && dtype == DType::kF64) continue;
      const Sample typed = retyped(s, DType::kF32, dtype);
      SCOPED_TRACE(fmt::format("{} as {}", to_string(s), dtype_name(dtype)));
      const Differentiated d(typed);
      ASSERT_EQ(d.cts.size(), typed.operands.size());
      int n = 0;
      for (size_t i = 0; i < d.cts.size(); ++i) {
        if (!d.cts[i]) continue;
        ++n;
        EXPECT_TRUE(is_float(typed.operands[i].dtype)) << "operand " << i;
        EXPECT_EQ(to_string(d.cts[i]->type()), to_string(typed.operands[i])) << "operand " << i;
      }
      // Constant almost everywhere: differentiable, with a gradient of zero.
      const bool flat = s.op == OpKind::kSign || s.op == OpKind::kFloor || s.op == OpKind::kCeil ||
                        s.op == OpKind::kRound;
      if (s.differentiable && !flat) {
        EXPECT_GT(n, 0);
      }
    }
  }
}

TEST(Gradients, UseTheResultWhereItServes) {
  using K = OpKind;
  for (K op : {K::kExp, K::kExpm1, K::kTanh, K::kSqrt, K::kRsqrt, K::kLogistic, K::kErfInv}) {
    const Differentiated d(sample(op, "f32"));
    EXPECT_TRUE(d.reads(d.results[0])) << op_name(op);
    EXPECT_FALSE(d.reads(d.operands[0])) << op_name(op);
  }
  for (K op : {K::kAdd, K::kSub}) {
    const Differentiated d(sample(op, "f32"));
    EXPECT_FALSE(d.reads(d.operands[0]) || d.reads(d.operands[1]) || d.reads(d.results[0]));
  }
  const Differentiated d(sample(K::kDiv, "f32"));
  EXPECT_FALSE(d.reads(d.operands[0]));
}

// dL/dW of y = x W is x^T ct in the layout of W, and dL/dx is ct W^T: two products, no transpose.
TEST(Gradients, OfADenseLayerNeedNoTranspose) {
  for (std::string_view name :
       {"matrices", "dense layer", "rhs transposed", "lhs transposed", "outer", "vectors"}) {
    const Differentiated d(sample(OpKind::kDotGeneral, name));
    EXPECT_EQ(d.count(OpKind::kTranspose), 0) << name;
    EXPECT_EQ(d.count(OpKind::kDotGeneral), 2) << name;
  }
  const Differentiated d(sample(OpKind::kDotGeneral, "dense layer"));
  const Node& dw = d.graph.def(d.cts[1]->id());
  EXPECT_EQ(dw.operands[0], d.operands[0].id());
  EXPECT_EQ(dw.as<DotParams>(), (DotParams{{0, 1}, {0, 1}, {}, {}, DType::kF32}));
}

// A bf16 product with an f32 result: the product of the gradient is in f32 and rounded once.
TEST(Gradients, OfAMixedProductAreComputedWide) {
  const Differentiated d(sample(OpKind::kDotGeneral, "bf16 to f32"));
  EXPECT_EQ(d.count(OpKind::kConvert), 2);
  EXPECT_EQ(d.graph.def(d.cts[0]->id()).as<DotParams>().out, DType::kBF16);
}

TEST(Gradients, OfAttentionAreOneNode) {
  Sample attention = sample(OpKind::kAttention, "causal");
  attention.cotangent_results = {0};
  const Differentiated d(attention);
  EXPECT_EQ(d.count(OpKind::kAttentionGrad), 1);
  EXPECT_EQ(d.graph.n_nodes(), d.n_forward + 1);
}

TEST(Gradients, OnlyOfNeededOperands) {
  const Sample& s = sample(OpKind::kMul, "f32");
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input(s.operands[0])), y(b, graph.add_input(s.operands[1]));
  const Val z = x * y;
  const Val ct(b, graph.add_input(z.type()));
  const Node node = graph.def(z.id());
  const size_t before = graph.n_nodes();
  const Cotangents cts =
      op_def(OpKind::kMul).vjp.function({node, {x, y}, {z}, {ct}, {false, true}});
  EXPECT_FALSE(cts[0]);
  EXPECT_TRUE(cts[1]);
  EXPECT_EQ(graph.n_nodes(), before + 1);
}

}  // namespace
}  // namespace stow::testing
