// The batching rules that ops share, and what rules of their own are made of.
#include <algorithm>

#include "stowage/core/scalar.h"
#include "stowage/ops/batch.h"
#include "stowage/ops/rule.h"

namespace stow::ops {

Dims shifted_for_batch(Dims axes, int64_t batch) {
  for (int64_t& axis : axes) axis = shifted_for_batch(axis, batch);
  return axes;
}

Dims inserted(Dims list, int64_t at, int64_t value) {
  list.insert(list.begin() + at, value);
  return list;
}

Val move_axis(const Val& x, int64_t from, int64_t to) {
  Dims order = all_axes(x.rank());
  order.erase(order.begin() + from);
  return transpose(x, inserted(std::move(order), to, from));
}

Val batched_at(const BatchContext& c, size_t i, int64_t axis) {
  const Val& x = c.operands[i];
  if (c.batched(i)) return move_axis(x, c.axes[i], axis);
  return broadcast_anywhere(x, Shape(inserted(x.shape().dims(), axis, c.size)),
                            shifted_for_batch(all_axes(x.rank()), axis));
}

std::vector<Val> all_batched_at(const BatchContext& c, int64_t axis) {
  std::vector<Val> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) operands.push_back(batched_at(c, i, axis));
  return operands;
}

Batched rebuilt(const BatchContext& c, Params params, std::span<const Val> operands, int64_t axis) {
  Batched results{c.builder.add(c.node.op, std::move(params), operands, c.node.graphs), {}};
  results.axes.assign(results.values.size(), axis);
  return results;
}

Batched batch_leaf(const BatchContext& c) {
  STOW_CHECK(false, "{} has no operands to batch", op_name(c.node.op));
  std::abort();
}

Batched batch_elementwise(const BatchContext& c) {
  const int64_t axis = c.first_axis();
  return rebuilt(c, c.node.params, all_batched_at(c, axis), axis);
}

Batched batch_marks(const BatchContext& c) {
  return {c.builder.add(c.node.op, c.node.params, c.operands), c.axes};
}

Batched batch_along_axis(const BatchContext& c) {
  AxisParams p = c.node.as<AxisParams>();
  const int64_t batch = c.first_axis();
  p.axis = shifted_for_batch(p.axis, batch);
  return rebuilt(c, p, all_batched_at(c, batch), batch);
}

Batched batch_reduce(const BatchContext& c) {
  const int64_t batch = c.axes[0];
  const Dims axes = shifted_for_batch(c.node.as<AxesParams>().axes, batch);
  const auto before = std::count_if(axes.begin(), axes.end(), [&](int64_t a) { return a < batch; });
  return rebuilt(c, AxesParams{axes}, c.operands, batch - before);
}

Batched batch_by_loop(const BatchContext& c) {
  auto body = std::make_shared<Graph>();
  GraphBuilder b(*body);
  b.provenance = c.node.provenance;
  b.pass = Pass::kVmap;
  ScanParams p{.length = c.size};
  std::vector<Val> consts, examples, places(c.operands.size(), Val(b, ValueId()));
  for (const bool batched : {false, true})  // consts come first
    for (size_t i = 0; i < c.operands.size(); ++i) {
      if (c.batched(i) != batched) continue;
      ArrayType type = c.operands[i].type();
      if (batched) {
        Dims dims = type.shape.dims();
        dims.erase(dims.begin() + c.axes[i]);
        type.shape = Shape(std::move(dims));
        p.in_axes.push_back(c.axes[i]);
      }
      places[i] = Val(b, body->add_input(type));
      (batched ? examples : consts).push_back(c.operands[i]);
    }
  std::vector<ValueId> outputs;
  for (const Val& y : b.add(c.node.op, c.node.params, places, c.node.graphs))
    outputs.push_back(y.id());
  p.n_consts = static_cast<int>(consts.size());
  p.out_axes = Dims(outputs.size(), 0);
  // The loops of a cond and of its gradient are a pair as scans are, so that policies reach into
  // it.
  if (c.node.op == OpKind::kCond) {
    p.n_residuals = c.node.as<CondParams>().n_residuals;
    p.reverse = c.node.backward;
  }
  body->set_outputs(std::move(outputs));
  consts.insert(consts.end(), examples.begin(), examples.end());
  Batched results{c.builder.add(OpKind::kScan, p, consts, {body}), {}};
  results.axes.assign(results.values.size(), 0);
  return results;
}

}  // namespace stow::ops
