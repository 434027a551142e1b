// CustomVjp: a function with a gradient rule of the user's. Reverse mode uses the rule; everything
// else sees graph 0.
#include <algorithm>

#include "stowage/ops/batch.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr std::string_view kGraphNames[] = {"function", "forward rule", "backward rule"};

void check_takes(const InferContext& c, size_t which, std::span<const ArrayType> types) {
  const Graph& graph = *c.graphs[which];
  if (graph.inputs().size() != types.size())
    c.error("the {} takes {} inputs, {} are given", kGraphNames[which], graph.inputs().size(),
            types.size());
  for (size_t i = 0; i < types.size(); ++i)
    if (!(graph.type(graph.inputs()[i]) == types[i]))
      c.error("the {} takes {} as input {}, is given {}", kGraphNames[which],
              to_string(graph.type(graph.inputs()[i])), i, to_string(types[i]));
}

std::vector<ArrayType> outputs_of(const Graph& graph) {
  std::vector<ArrayType> types;
  for (ValueId v : graph.outputs()) types.push_back(graph.type(v));
  return types;
}

void check_gives(const InferContext& c, size_t which, std::span<const ArrayType> got,
                 std::span<const ArrayType> want) {
  for (size_t i = 0; i < want.size(); ++i)
    if (!(got[i] == want[i]))
      c.error("the {} gives {} as output {}, {} is needed", kGraphNames[which], to_string(got[i]),
              i, to_string(want[i]));
}

std::vector<ArrayType> infer_custom_vjp(const InferContext& c) {
  const auto& p = params_of<CustomVjpParams>(c);
  if (c.graphs.size() != 3 || !c.graphs[0] || !c.graphs[1] || !c.graphs[2])
    c.error("takes 3 nested graphs, got {}", c.graphs.size());
  for (size_t i = 0; i < c.operands.size(); ++i)
    check_size(c, c.operand(i), fmt::format("operand {}", i));
  if (p.n_args < 0 || static_cast<size_t>(p.n_args) > c.operands.size() || p.n_residuals < 0)
    c.error("{} arguments among {} operands and {} residuals cannot be", p.n_args,
            c.operands.size(), p.n_residuals);
  check_takes(c, 0, c.operands);
  check_takes(c, 1, c.operands);
  const std::vector<ArrayType> results = outputs_of(*c.graphs[0]);
  const std::vector<ArrayType> forward = outputs_of(*c.graphs[1]);
  if (forward.size() != results.size() + static_cast<size_t>(p.n_residuals))
    c.error("the forward rule gives {} outputs, {} results and {} residuals are needed",
            forward.size(), results.size(), p.n_residuals);
  check_gives(c, 1, forward, results);
  std::vector<ArrayType> given(forward.begin() + static_cast<ptrdiff_t>(results.size()),
                               forward.end());
  given.insert(given.end(), results.begin(), results.end());
  given.insert(given.end(), c.operands.begin() + p.n_args, c.operands.end());
  check_takes(c, 2, given);
  const std::vector<ArrayType> backward = outputs_of(*c.graphs[2]);
  if (backward.size() != static_cast<size_t>(p.n_args))
    c.error("the backward rule gives {} cotangents, the arguments are {}", backward.size(),
            p.n_args);
  // A cotangent made on the device is moved to where its argument lies, or wanted there.
  std::vector<ArrayType> wanted(c.operands.begin(), c.operands.begin() + p.n_args);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (backward[i].kind == MemoryKind::kDevice) wanted[i].kind = MemoryKind::kDevice;
  check_gives(c, 2, backward, wanted);
  return results;
}

[[noreturn]] Cotangents vjp_custom_vjp(const VjpContext& c) {
  STOW_CHECK(false, "the gradient of {} is autodiff's", op_name(c.node.op));
  std::abort();
}

// The rules are batched with the function. The cotangent of an argument that all examples share is
// the sum of theirs.
Batched batch_custom_vjp(const BatchContext& c) {
  const auto& p = c.node.as<CustomVjpParams>();
  const auto n_args = static_cast<size_t>(p.n_args);
  const auto n_results = static_cast<size_t>(c.node.n_results);
  const auto axes = [](size_t n, int64_t axis) { return std::vector<int64_t>(n, axis); };

  BatchedGraph function = batch_graph(*c.node.graphs[0], c.size, c.axes, axes(n_results, 0));
  std::vector<int64_t> out = axes(n_results + static_cast<size_t>(p.n_residuals), kAnyAxis);
  std::fill_n(out.begin(), n_results, 0);
  BatchedGraph forward = batch_graph(*c.node.graphs[1], c.size, c.axes, out);
  std::vector<int64_t> in(forward.out_axes.begin() + c.node.n_results, forward.out_axes.end());
  in.insert(in.end(), n_results, 0);
  in.insert(in.end(), c.axes.begin() + p.n_args, c.axes.end());
  out.assign(c.axes.begin(), c.axes.begin() + p.n_args);
  for (int64_t& axis : out) axis = axis == kUnbatched ? 0 : axis;
  BatchedGraph backward = batch_graph(*c.node.graphs[2], c.size, in, out);

  GraphBuilder b(backward.graph);
  b.provenance = c.node.provenance;
  b.pass = Pass::kVmap;
  std::vector<ValueId> cotangents = backward.graph.outputs();
  for (size_t i = 0; i < n_args; ++i) {
    if (c.batched(i)) continue;
    const ArrayType& type = c.operands[i].type();
    const Val each = device_put(Val(b, cotangents[i]), MemoryKind::kDevice);
    const Val all = is_float(type.dtype) ? device_put(reduce_sum(each, {0}), type.kind)
                                         : full_anywhere(b, type, 0);
    cotangents[i] = all.id();
  }
  backward.graph.set_outputs(std::move(cotangents));
  const auto shared = [](BatchedGraph& g) {
    return std::make_shared<const Graph>(std::move(g.graph));
  };
  return {c.builder.add(OpKind::kCustomVjp, p, c.operands,
                        {shared(function), shared(forward), shared(backward)}),
          axes(n_results, 0)};
}

Cost cost_custom_vjp(const InferContext& c, std::span<const ArrayType>) {
  return graph_cost(*c.graphs[0]);
}

}  // namespace

constinit const OpDef kCustomVjp = {.op = OpKind::kCustomVjp,
                                    .infer = infer_custom_vjp,
                                    .vjp = vjp_custom_vjp,
                                    .batch = batch_custom_vjp,
                                    .shard = shard_whole,
                                    .local = local_by_partitioner,
                                    .cost = cost_custom_vjp};

}  // namespace stow::ops
