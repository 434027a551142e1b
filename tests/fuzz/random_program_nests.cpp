// The steps of random programs that hold graphs: scans, checkpoints, conds, whiles, custom_vjp,
// batches.
#include "stowage/autodiff/flatten.h"
#include "stowage/autodiff/reverse.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/batch.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/random_program_maker.h"

namespace stow::testing::random_programs {

void Maker::scan_step() {
  for (const Val& v : scan_from({})) add(v);
}

// A scan whose carries begin with these values; where there are none, with any.
std::vector<Val> Maker::scan_from(const std::vector<Val>& inits) {
  constexpr int64_t kLengths[] = {0, 1, 2, 3, 3, 4, 5};
  ScanParams p{.length = kLengths[below(std::size(kLengths))], .reverse = below(2) == 0};
  if (below(3) == 0) p.unroll = static_cast<int64_t>(below(4));
  std::vector<Val> operands;
  std::vector<ArrayType> types;
  const auto take = [&](const Val& v) {
    operands.push_back(v);
    types.push_back(v.type());
  };
  p.n_consts = static_cast<int>(below(3));
  p.n_carries = inits.empty() ? static_cast<int>(below(4)) : static_cast<int>(inits.size());
  for (int i = 0; i < p.n_consts; ++i) take(any_anywhere());
  for (const Val& v : inits) take(v);
  for (int i = 0; i < p.n_carries && inits.empty(); ++i)
    take(i > 0 && below(2) ? of(operands.back().type()) : any_anywhere());
  for (uint64_t i = below(4); i > 0; --i) {
    const ArrayType slice = any_anywhere().type();
    if (slice.shape.rank() > 2 || slice.elems() * p.length > context_.max_elems) continue;
    Dims dims = slice.shape.dims();
    const size_t axis = below(dims.size() + 1);
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), p.length);
    const ArrayType stack{slice.dtype, Shape(dims), slice.kind};
    if (slice.kind == MemoryKind::kDevice && is_float(slice.dtype) && below(5) == 0) {
      scan_part(stack, axis, p, operands, types);
      continue;
    }
    operands.push_back(of(stack));
    types.push_back({slice.dtype, slice.shape, slice.kind});
    p.in_axes.push_back(static_cast<int64_t>(axis));
    if (below(4) == 0) {  // the same stack twice
      operands.push_back(operands.back());
      types.push_back(types.back());
      p.in_axes.push_back(p.in_axes.back());
    }
  }
  if (types.empty()) return {};
  auto body = std::make_shared<Graph>();
  Maker inner(context_, *body, depth_ - 1);
  for (const ArrayType& type : types) inner.input(type);
  const std::vector<Val> inputs = inner.inputs_;
  if (inner.pool_.size() + inner.away_.size() != types.size()) return {};
  inner.grow(2 + below(8));
  std::vector<ValueId> outputs = carries(inner, inputs, p);
  for (uint64_t i = below(4); i > 0; --i) {
    Val y = inner.any_anywhere();
    if (p.n_carries > 0 && below(3) == 0) {  // a carry as it comes or as it goes
      const auto k = below(static_cast<uint64_t>(p.n_carries));
      y = below(2) ? inputs[static_cast<size_t>(p.n_consts) + k]
                   : Val(inner.builder_, outputs[k]);
    }
    if (y.rank() > 3 || y.type().elems() * p.length > context_.max_elems) continue;
    outputs.push_back(y.id());
    p.out_axes.push_back(
        below(2) ? 0 : static_cast<int64_t>(below(static_cast<uint64_t>(y.rank()) + 1)));
  }
  if (outputs.empty()) return {};
  body->set_outputs(outputs);
  return builder_.add(OpKind::kScan, p, operands, {body});
}

// Scans what is a part of a concatenation as well, which is scanned beside it or read later.
void Maker::scan_part(const ArrayType& stack, size_t axis, ScanParams& p,
                      std::vector<Val>& operands, std::vector<ArrayType>& types) {
  const auto take = [&](const Val& v) {
    Dims dims = v.shape().dims();
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
    operands.push_back(v);
    types.push_back({v.dtype(), Shape(dims)});
    p.in_axes.push_back(static_cast<int64_t>(axis));
  };
  const std::vector<Val> parts = {of(stack) * 0.5, of(stack)};
  const size_t joined = below(static_cast<uint64_t>(stack.shape.rank()));
  const Val whole = concatenate(parts, static_cast<int64_t>(joined));
  add(whole);
  take(parts[0]);
  if (joined != axis && below(2)) take(whole);
}

// Half of it and something new, where it lies.
Val Maker::successor(ValueId of_what) {
  const Val v = device_put(Val(builder_, of_what), MemoryKind::kDevice);
  return device_put(v * 0.5 + tanh(of(v.type())), builder_.graph().type(of_what).kind);
}

// A value with a new row that depends on the old one, as a cache is updated.
Val Maker::with_new_row(const Val& v) {
  std::vector<Val> start(static_cast<size_t>(v.rank()), constant_int(builder_, DType::kI32, 0));
  if (below(2)) start[0] = of({DType::kI32, {}});
  Dims row = v.shape().dims();
  row[0] = 1;
  const Val old = dynamic_slice(v, start, row);
  return dynamic_update_slice(v, below(2) ? of(old.type()) : old, start);
}

// What becomes of each carry: new, updated in place, passed through, or another's.
std::vector<ValueId> Maker::carries(Maker& inner, const std::vector<Val>& inputs,
                                    const ScanParams& p) {
  std::vector<ValueId> outputs;
  for (int k = 0; k < p.n_carries; ++k) {
    const Val& in = inputs[static_cast<size_t>(p.n_consts + k)];
    if (below(6) == 0) {
      outputs.push_back(in.id());
    } else if (below(8) == 0 && inner.depth_ > 0) {
      const std::vector<Val> results = inner.scan_from({in});
      outputs.push_back(results.empty() ? in.id() : results[0].id());
    } else if (below(8) == 0 && in.rank() > 0 && in.type().elems() > 0 &&
               in.type().kind == MemoryKind::kDevice) {
      outputs.push_back(inner.with_new_row(in).id());
    } else if (below(5) == 0) {
      std::vector<ValueId> alike;
      for (const Val& v : inputs)
        if (v.type() == in.type()) alike.push_back(v.id());
      outputs.push_back(alike[below(alike.size())]);
    } else if (is_float(in.dtype()) && below(4) > 0) {
      const Val here = device_put(in, MemoryKind::kDevice), v = inner.of(here.type());
      const Val out = [&] {
        switch (below(3)) {
          case 0:
            return tanh(v) + here * 0.5;
          case 1:
            return tanh(v + here);
          default:
            return cos(inner.bounded(here)) * inner.bounded(v);
        }
      }();
      outputs.push_back(device_put(out, in.type().kind).id());
    } else {
      outputs.push_back(inner.of(in.type()).id());
    }
  }
  return outputs;
}

void Maker::checkpoint_step() {
  std::vector<Val> operands;
  for (uint64_t i = 0, n = 1 + below(4); i < n; ++i) operands.push_back(any_anywhere());
  auto body = std::make_shared<Graph>();
  Maker inner(context_, *body, depth_ - 1);
  for (const Val& v : operands) inner.input(v.type());
  inner.grow(3 + below(8));
  body->set_outputs(inner.outputs(1 + below(3)));
  CheckpointParams p{.policy = below(5) ? random_policy(below(1000)) : nullptr,
                     .prevent_cse = below(3) > 0};
  for (const Val& v : builder_.add(OpKind::kCheckpoint, p, operands, {body})) add(v);
}

// A nested graph over inputs of these types.
std::shared_ptr<Graph> Maker::nested(const std::vector<ArrayType>& inputs) {
  auto body = std::make_shared<Graph>();
  Maker inner(context_, *body, depth_ - 1);
  for (const ArrayType& type : inputs) inner.input(type);
  inner.grow(3 + below(6));
  body->set_outputs(inner.outputs(1 + below(3)));
  return body;
}

// What vmap does: the graph of one example over a batch, its nodes put here.
void Maker::batched_step() {
  const int64_t size = context_.extent();
  if (size > 8) return;
  std::vector<Val> operands;
  std::vector<ArrayType> types;
  std::vector<int64_t> axes;
  for (uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
    const Val v = any_anywhere();
    std::vector<int64_t> fitting = {kUnbatched};
    for (int64_t a = 0; a < v.rank(); ++a)
      if (v.shape()[static_cast<int>(a)] == size) fitting.insert(fitting.end(), {a, a});
    axes.push_back(fitting[below(fitting.size())]);
    types.push_back(v.type());
    if (axes.back() != kUnbatched) {
      Dims dims = v.shape().dims();
      dims.erase(dims.begin() + axes.back());
      types.back().shape = Shape(dims);
    }
    operands.push_back(v);
  }
  const auto body = nested(types);
  const BatchedGraph batched = batch_graph(
      *body, size, axes, std::vector<int64_t>(body->outputs().size(), kAnyAxis));
  ValueMap map(batched.graph);
  for (size_t i = 0; i < operands.size(); ++i)
    map.set(batched.graph.inputs()[i], operands[i].id());
  for (const Node& node : batched.graph.nodes())
    copy_node(batched.graph, node, builder_.graph(), map, {});
  for (ValueId v : batched.graph.outputs()) add(Val(builder_, map[v]));
}

// A function whose gradient rule is its gradient, with its arguments as residuals.
void Maker::custom_vjp_step() {
  std::vector<Val> operands;
  std::vector<ArrayType> types;
  for (uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
    operands.push_back(any_anywhere());
    types.push_back(operands.back().type());
  }
  const auto function = nested(types);
  ReverseSpec spec;
  for (size_t i = 0; i < types.size(); ++i)
    if (is_float(types[i].dtype)) spec.wrt.push_back(static_cast<int>(i));
  const auto is_float_output = [&](size_t i) {
    return is_float(function->type(function->outputs()[i]).dtype);
  };
  const size_t n_results = function->outputs().size();
  for (size_t i = 0; i < n_results; ++i)
    if (is_float_output(i)) spec.outputs.push_back(static_cast<int>(i));
  Graph joint;
  try {
    joint = reverse(*function, spec);
  } catch (const TraceError&) {
    return;  // an op without a gradient
  }
  auto forward = std::make_shared<Graph>(*function), backward = std::make_shared<Graph>();
  std::vector<ValueId> outputs = function->outputs();
  outputs.insert(outputs.end(), function->inputs().begin(), function->inputs().end());
  forward->set_outputs(outputs);

  GraphBuilder b(*backward);
  std::vector<ValueId> inputs, cotangents;
  for (const ArrayType& type : types) inputs.push_back(backward->add_input(type));
  for (size_t i = 0; i < n_results; ++i) {
    const ValueId ct = backward->add_input(function->type(function->outputs()[i]));
    if (is_float_output(i)) inputs.push_back(ct);
  }
  const std::vector<ValueId> all = inline_flat(joint, inputs, *backward, RegionId(), false);
  size_t next = n_results;
  for (const ArrayType& type : types)
    cotangents.push_back(is_float(type.dtype) ? all[next++] : full_anywhere(b, type, 0).id());
  backward->set_outputs(cotangents);
  const auto n = static_cast<int>(types.size());
  for (const Val& v : builder_.add(OpKind::kCustomVjp, CustomVjpParams{n, n}, operands,
                                   {function, forward, backward}))
    add(v);
}

// A condition, a switch; results that are new, handed through or an operand's successor.
void Maker::cond_step() {
  const bool is_bool = below(2) == 0;
  Val index = of({is_bool ? DType::kBool : DType::kI32, {}});
  if (is_bool && context_.discrete && below(2)) {
    const Val x = any_float();
    Dims axes;
    for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
    index = gt(reduce_sum(x, axes), constant(builder_, x.dtype(), 0.1));
  }
  std::vector<Val> operands = {index};
  for (uint64_t i = below(5); i > 0; --i)
    operands.push_back(below(3) == 0 && operands.size() > 1 ? of(operands.back().type())
                                                           : any_anywhere());
  if (below(8) == 0) operands.push_back(operands.back());
  std::vector<GraphPtr> graphs;
  std::vector<ArrayType> types;
  const uint64_t n_results = 1 + below(3);
  for (uint64_t n = is_bool ? 2 : 1 + below(4), b = 0; b < n; ++b) {
    auto graph = std::make_shared<Graph>();
    Maker inner(context_, *graph, depth_ - 1);
    for (size_t i = 1; i < operands.size(); ++i) inner.input(operands[i].type());
    const std::vector<Val> inputs = inner.inputs_;
    if (inner.pool_.size() + inner.away_.size() + 1 != operands.size()) return;
    if (inputs.empty()) inner.leaf_step();
    if (below(4) > 0) inner.grow(1 + below(7));
    std::vector<ValueId> outputs;
    for (size_t j = 0; j < n_results; ++j) {
      if (b == 0)
        types.push_back(below(3) > 0 && !inputs.empty() ? inputs[below(inputs.size())].type()
                                                        : inner.any_anywhere().type());
      std::vector<ValueId> alike;
      for (const Val& v : inputs)
        if (v.type() == types[j]) alike.push_back(v.id());
      if (!alike.empty() && below(3) == 0)
        outputs.push_back(alike[below(alike.size())]);
      else if (!alike.empty() && is_float(types[j].dtype) && below(2) == 0)
        outputs.push_back(inner.successor(alike[below(alike.size())]).id());
      else
        outputs.push_back(inner.of(types[j]).id());
    }
    graph->set_outputs(outputs);
    graphs.push_back(graph);
  }
  for (const Val& v : builder_.add(OpKind::kCond, CondParams{}, operands, graphs)) add(v);
}

// A few iterations of a counter, and where jumps are allowed as long as a sum is small.
void Maker::while_step() {
  if (context_.differentiated && context_.floats == std::vector{DType::kF64}) return;
  const auto still = [&](const Val& v) {
    return context_.differentiated && is_float(v.dtype())
               ? builder_.add1(OpKind::kStopGradient, NoParams{}, {v})
               : v;
  };
  WhileParams p{.n_cond_consts = 1, .n_body_consts = static_cast<int>(below(3))};
  std::vector<Val> operands = {of({DType::kI32, {}})};
  for (int i = 0; i < p.n_body_consts; ++i) operands.push_back(still(any_anywhere()));
  const size_t first = operands.size();
  operands.push_back(below(2) ? constant_int(builder_, DType::kI32, 0)
                              : max(of({DType::kI32, {}}), constant_int(builder_, DType::kI32, 1)));
  for (uint64_t i = below(4); i > 0; --i)
    operands.push_back(still(below(2) ? of(operands.back().type()) : any_anywhere()));
  auto condition = std::make_shared<Graph>(), body = std::make_shared<Graph>();
  Maker c(context_, *condition, depth_ - 1), inner(context_, *body, depth_ - 1);
  c.input(operands[0].type());
  for (size_t i = 1; i < operands.size(); ++i) {
    if (i >= first) c.input(operands[i].type());
    inner.input(operands[i].type());
  }
  const std::vector<Val> seen = c.inputs_, inputs = inner.inputs_;
  if (inner.pool_.size() + inner.away_.size() + 1 != operands.size()) return;
  Val holds = lt(seen[1], min(seen[0], constant_int(c.builder_, DType::kI32, 4)));
  if (context_.discrete && below(2)) {
    const Val x = c.any_float();
    Dims axes;
    for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
    holds = logical_and(holds, lt(reduce_sum(x, axes), constant(c.builder_, x.dtype(), 2)));
  }
  condition->set_outputs({holds.id()});
  inner.grow(1 + below(6));
  const std::vector<Val> carried(inputs.begin() + p.n_body_consts, inputs.end());
  std::vector<ValueId> outputs = carries(
      inner, inputs, ScanParams{.n_consts = p.n_body_consts,
                                .n_carries = static_cast<int>(carried.size())});
  outputs[0] = (carried[0] + 1).id();
  body->set_outputs(outputs);
  for (const Val& v : builder_.add(OpKind::kWhile, p, operands, {condition, body})) add(v);
}

}  // namespace stow::testing::random_programs
