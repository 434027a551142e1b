// The nested graphs of the samples of scan, checkpoint and custom_vjp.
// Not a place for other test graphs.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/build.h"
#include "tests/ops/samples.h"

namespace stow::testing {

/// (const f32[2,3], carry f32[4], slice f32[4,4], slice f32[3]) -> (tanh(carry x slice) f32[4],
/// const * slice + sum(carry) f32[2,3]).
inline GraphPtr scan_body() {
  auto graph = std::make_shared<Graph>();
  GraphBuilder b(*graph);
  const Val table(b, graph->add_input(parse_type("f32[2,3]"), "table"));
  const Val carry(b, graph->add_input(parse_type("f32[4]"), "carry"));
  const Val weight(b, graph->add_input(parse_type("f32[4,4]"), "weight"));
  const Val row(b, graph->add_input(parse_type("f32[3]"), "row"));
  const DotParams dot{{0}, {0}, {}, {}, DType::kF32};
  const Val next = tanh(dot_general(carry, weight, dot));
  const Val sum = broadcast_scalar(reduce_sum(carry, {0}), table.shape());
  const Val y = table * broadcast(row, table.shape(), {1}) + sum;
  graph->set_outputs({next.id(), y.id()});
  return graph;
}

/// Branches (x f32[3,4], w f32[4,4]) -> (f32[3,4], f32[]): the first reads both, the second only x,
/// the third neither, and so on.
inline std::vector<GraphPtr> cond_branches(size_t n) {
  std::vector<GraphPtr> branches;
  for (size_t i = 0; i < n; ++i) {
    auto graph = std::make_shared<Graph>();
    GraphBuilder b(*graph);
    const Val x(b, graph->add_input(parse_type("f32[3,4]"), "x"));
    const Val w(b, graph->add_input(parse_type("f32[4,4]"), "w"));
    if (i % 3 == 0) {
      const Val y = tanh(matmul(x, w));
      graph->set_outputs({(y * sin(x)).id(), reduce_sum(y, {0, 1}).id()});
    } else if (i % 3 == 1) {
      graph->set_outputs({x.id(), reduce_sum(x * x, {0, 1}).id()});
    } else {
      graph->set_outputs({full(b, x.type(), 0.5).id(), constant(b, DType::kF32, 2).id()});
    }
    branches.push_back(graph);
  }
  return branches;
}

/// (limit i32[]; step f32[4]; count i32[], x f32[4], y f32[4]): while count < limit,
/// (x, y) = (y + step * x, x).
inline std::vector<GraphPtr> while_graphs() {
  auto condition = std::make_shared<Graph>(), body = std::make_shared<Graph>();
  GraphBuilder c(*condition), b(*body);
  const Val limit(c, condition->add_input(parse_type("i32[]"), "limit"));
  const Val at(c, condition->add_input(parse_type("i32[]"), "count"));
  condition->add_input(parse_type("f32[4]"), "x");
  condition->add_input(parse_type("f32[4]"), "y");
  condition->set_outputs({lt(at, limit).id()});
  const Val step(b, body->add_input(parse_type("f32[4]"), "step"));
  const Val count(b, body->add_input(parse_type("i32[]"), "count"));
  const Val x(b, body->add_input(parse_type("f32[4]"), "x"));
  const Val y(b, body->add_input(parse_type("f32[4]"), "y"));
  body->set_outputs({(count + 1).id(), (y + step * x).id(), x.id()});
  return {condition, body};
}

/// (x f32[3,4], w f32[4,4]) -> tanh(x w) named "hidden".
inline GraphPtr checkpoint_body() {
  auto graph = std::make_shared<Graph>();
  GraphBuilder b(*graph);
  const Val x(b, graph->add_input(parse_type("f32[3,4]"), "x"));
  const Val w(b, graph->add_input(parse_type("f32[4,4]"), "w"));
  graph->set_outputs({name(tanh(matmul(x, w)), "hidden").id()});
  return graph;
}

/// Primal, forward and backward graphs of y = (sin(x) + shift) w, for x f32[3,4], w f32[4] and a
/// captured shift i32[]. The forward rule saves cos(x), the first factor and w.
inline std::vector<GraphPtr> custom_vjp_graphs() {
  std::vector<GraphPtr> graphs;
  const Shape shape{3, 4};
  for (const bool forward : {false, true}) {
    auto graph = std::make_shared<Graph>();
    GraphBuilder b(*graph);
    const Val x(b, graph->add_input(parse_type("f32[3,4]"), "x"));
    const Val w(b, graph->add_input(parse_type("f32[4]"), "w"));
    const Val shift(b, graph->add_input(parse_type("i32[]"), "shift"));
    const Val factor = sin(x) + broadcast_scalar(convert(shift, x.dtype()), shape);
    std::vector<ValueId> outputs = {(factor * broadcast(w, shape, {1})).id()};
    if (forward) outputs.insert(outputs.end(), {cos(x).id(), factor.id(), w.id()});
    graph->set_outputs(std::move(outputs));
    graphs.push_back(std::move(graph));
  }
  auto graph = std::make_shared<Graph>();
  GraphBuilder b(*graph);
  const Val slope(b, graph->add_input(parse_type("f32[3,4]"), "slope"));
  const Val factor(b, graph->add_input(parse_type("f32[3,4]"), "factor"));
  const Val w(b, graph->add_input(parse_type("f32[4]"), "w"));
  const Val ct(b, graph->add_input(parse_type("f32[3,4]"), "ct"));
  graph->add_input(parse_type("i32[]"), "shift");
  graph->set_outputs(
      {(ct * slope * broadcast(w, shape, {1})).id(), reduce_sum(ct * factor, {0}).id()});
  graphs.push_back(std::move(graph));
  return graphs;
}

}  // namespace stow::testing
