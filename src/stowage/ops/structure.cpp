// Scan, Checkpoint and the marks Name, StopGradient, OptimizationBarrier.
#include <algorithm>

#include "stowage/ops/batch.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// The one nested graph.
const Graph& body_of(const InferContext& c) {
  if (c.graphs.size() != 1 || !c.graphs[0])
    c.error("takes 1 nested graph, got {}", c.graphs.size());
  return *c.graphs[0];
}

void check_sizes(const InferContext& c) {
  for (size_t i = 0; i < c.operands.size(); ++i)
    check_size(c, c.operand(i), fmt::format("operand {}", i));
}

std::vector<ArrayType> output_types(const Graph& graph) {
  std::vector<ArrayType> types;
  for (ValueId id : graph.outputs()) types.push_back(graph.type(id));
  return types;
}

[[noreturn]] Cotangents vjp_structure(const VjpContext& c) {
  STOW_CHECK(false, "the gradient of {} is autodiff's", op_name(c.node.op));
  std::abort();
}

// ---- Scan ----

// An operand as the body sees it: `what` and `leaf` name it in messages.
void check_body_input(const InferContext& c, const ArrayType& type, const ArrayType& body,
                      std::string_view what, size_t leaf) {
  if (!(type == body))
    c.error("{} {} is {}, the body takes {}", what, leaf, to_string(type), to_string(body));
}

ArrayType slice_type(const InferContext& c, const ArrayType& stack, int64_t axis, int64_t length,
                     size_t leaf) {
  if (axis < 0 || axis >= stack.shape.rank())
    c.error("axis {} of scanned {} is out of range for {}", axis, leaf, to_string(stack));
  if (stack.shape[static_cast<int>(axis)] != length)
    c.error("axis {} of scanned {}, {}, is not of length {}", axis, leaf, to_string(stack), length);
  Dims dims = stack.shape.dims();
  dims.erase(dims.begin() + axis);
  ArrayType slice = stack;
  slice.shape = Shape(std::move(dims));
  return slice;
}

ArrayType stack_type(const InferContext& c, const ArrayType& slice, int64_t axis, int64_t length,
                     size_t leaf) {
  if (axis < 0 || axis > slice.shape.rank())
    c.error("axis {} of stacked {} is out of range for slices {}", axis, leaf, to_string(slice));
  Dims dims = slice.shape.dims();
  dims.insert(dims.begin() + axis, length);
  ArrayType stack = slice;
  stack.shape = Shape(std::move(dims));
  check_size(c, stack, "result");
  return stack;
}

constexpr int64_t kMaxUnrolled = int64_t{1} << 20;  // nodes, far beyond any model

// The number of times that the body is written out, or one more than the limit.
int64_t times_unrolled(const ScanParams& p) {
  const int64_t times = p.unroll == 0 ? p.length : std::min(p.unroll, p.length);
  return std::clamp<int64_t>(times, 1, kMaxUnrolled + 1);
}

// The nodes of a graph once its scans are unrolled, or more than the limit. A body of none counts
// as one: its iterations are gone through.
int64_t n_unrolled(const Graph& graph) {
  int64_t total = 1;
  for (const Node& node : graph.nodes()) {
    int64_t n = 1;
    for (const GraphPtr& nested : node.graphs) n += n_unrolled(*nested);
    if (node.op == OpKind::kScan) n *= times_unrolled(node.as<ScanParams>());
    total = std::min(total + n, kMaxUnrolled + 1);
  }
  return total;
}

std::vector<ArrayType> infer_scan(const InferContext& c) {
  const auto& p = params_of<ScanParams>(c);
  const Graph& body = body_of(c);
  check_sizes(c);
  if (p.length < 0 || p.n_consts < 0 || p.n_carries < 0)
    c.error("length {}, {} consts and {} carries cannot be", p.length, p.n_consts, p.n_carries);
  if (p.unroll < 0) c.error("cannot be unrolled by {}", p.unroll);
  if (p.unroll != 1 && times_unrolled(p) * n_unrolled(body) > kMaxUnrolled)
    c.error("unrolled by {} it has more than {} nodes", p.unroll == 0 ? p.length : p.unroll,
            kMaxUnrolled);
  const auto n_consts = static_cast<size_t>(p.n_consts);
  const auto n_carries = static_cast<size_t>(p.n_carries);
  const size_t n_operands = n_consts + n_carries + p.in_axes.size();
  const size_t n_results = n_carries + p.out_axes.size();
  if (p.n_residuals < 0 || static_cast<size_t>(p.n_residuals) > p.out_axes.size())
    c.error("{} residuals of {} stacked results", p.n_residuals, p.out_axes.size());
  check_count(c, n_operands);
  if (body.inputs().size() != n_operands)
    c.error("the body takes {} inputs, the operands are {}", body.inputs().size(), n_operands);
  if (body.outputs().size() != n_results)
    c.error("the body gives {} outputs, {} carries and {} slices are needed", body.outputs().size(),
            n_carries, p.out_axes.size());

  const std::vector<ArrayType> outputs = output_types(body);
  std::vector<ArrayType> results;
  for (size_t i = 0; i < n_consts; ++i)
    check_body_input(c, c.operand(i), body.type(body.inputs()[i]), "const", i);
  for (size_t i = 0; i < n_carries; ++i) {
    const ArrayType& in = body.type(body.inputs()[n_consts + i]);
    check_body_input(c, c.operand(n_consts + i), in, "carry", i);
    if (!(in == outputs[i]))
      c.error("carry {} is {} going into the body and {} coming out", i, to_string(in),
              to_string(outputs[i]));
    results.push_back(outputs[i]);
    results.back().weak = c.operand(n_consts + i).weak && outputs[i].weak;
  }
  for (size_t i = 0; i < p.in_axes.size(); ++i) {
    const size_t at = n_consts + n_carries + i;
    check_body_input(c, slice_type(c, c.operand(at), p.in_axes[i], p.length, i),
                     body.type(body.inputs()[at]), "slice of scanned", i);
  }
  for (size_t i = 0; i < p.out_axes.size(); ++i)
    results.push_back(stack_type(c, outputs[n_carries + i], p.out_axes[i], p.length, i));
  return results;
}

// A carry has the batch at axis 0 once any iteration gives it one; everything else keeps its axis,
// so that a backward scan still reads the residuals of its forward scan themselves.
Batched batch_scan(const BatchContext& c) {
  ScanParams p = c.node.as<ScanParams>();
  const auto first_carry = static_cast<size_t>(p.n_consts);
  const auto n_carries = static_cast<size_t>(p.n_carries);
  const size_t first_x = first_carry + n_carries;
  std::vector<int64_t> in = c.axes;
  for (size_t i = first_x; i < in.size(); ++i) {
    if (!c.batched(i)) continue;
    int64_t& scanned = p.in_axes[i - first_x];
    scanned = shifted_for_batch(scanned, in[i]);
    in[i] -= in[i] > scanned ? 1 : 0;
  }
  std::vector<int64_t> out(n_carries + p.out_axes.size(), kAnyAxis);
  for (size_t k = 0; k < n_carries; ++k)
    if (c.batched(first_carry + k)) out[k] = in[first_carry + k] = 0;
  BatchedGraph body;
  for (bool settled = false; !settled;) {
    body = batch_graph(*c.node.graphs[0], c.size, in, out);
    settled = true;
    for (size_t k = 0; k < n_carries; ++k) {
      if (out[k] == 0 || body.out_axes[k] == kUnbatched) continue;
      out[k] = in[first_carry + k] = 0;
      settled = false;
    }
  }
  std::vector<Val> operands = c.operands;
  for (size_t k = 0; k < n_carries; ++k)
    if (out[k] == 0) operands[first_carry + k] = batched_at(c, first_carry + k, 0);
  std::vector<int64_t> axes = body.out_axes;
  for (size_t i = 0; i < p.out_axes.size(); ++i) {
    int64_t& axis = axes[n_carries + i];
    if (axis == kUnbatched) continue;
    int64_t& stacked = p.out_axes[i];
    stacked += stacked > axis ? 1 : 0;
    axis += stacked <= axis ? 1 : 0;
  }
  return {c.builder.add(OpKind::kScan, p, operands,
                        {std::make_shared<const Graph>(std::move(body.graph))}),
          std::move(axes)};
}

Cost cost_scan(const InferContext& c, std::span<const ArrayType>) {
  const Cost body = graph_cost(body_of(c));
  const auto n = static_cast<double>(c.as<ScanParams>().length);
  return {n * body.flops, n * body.bytes};
}

// ---- Checkpoint ----

std::vector<ArrayType> infer_checkpoint(const InferContext& c) {
  params_of<CheckpointParams>(c);
  const Graph& body = body_of(c);
  check_sizes(c);
  check_count(c, body.inputs().size());
  for (size_t i = 0; i < c.operands.size(); ++i)
    check_body_input(c, c.operand(i), body.type(body.inputs()[i]), "operand", i);
  return output_types(body);
}

Batched batch_checkpoint(const BatchContext& c) {
  const Graph& graph = *c.node.graphs[0];
  BatchedGraph body =
      batch_graph(graph, c.size, c.axes, std::vector<int64_t>(graph.outputs().size(), kAnyAxis));
  return {c.builder.add(OpKind::kCheckpoint, c.node.params, c.operands,
                        {std::make_shared<const Graph>(std::move(body.graph))}),
          std::move(body.out_axes)};
}

Cost cost_checkpoint(const InferContext& c, std::span<const ArrayType>) {
  return graph_cost(body_of(c));
}

// ---- Marks: any memory kind passes ----

template <typename P>
std::vector<ArrayType> infer_mark(const InferContext& c) {
  check_no_graphs(c);
  params_of<P>(c);
  check_count(c, 1);
  check_sizes(c);
  return {c.operand(0)};
}

std::vector<ArrayType> infer_name(const InferContext& c) {
  if (params_of<NameParams>(c).name.empty()) c.error("the name is empty");
  return infer_mark<NameParams>(c);
}

Cotangents vjp_identity(const VjpContext& c) {
  Cotangents result(c.operands.size());
  for (size_t i = 0; i < result.size(); ++i)
    if (c.needed[i]) result[i] = c.cotangents[i];
  return result;
}

std::vector<ArrayType> infer_barrier(const InferContext& c) {
  check_no_graphs(c);
  params_of<NoParams>(c);
  if (c.operands.empty()) c.error("takes at least 1 operand, got 0");
  check_sizes(c);
  return {c.operands.begin(), c.operands.end()};
}

// Operand i is result i; each has letters of its own.
ShardingFactors shard_barrier(const InferContext& c, std::span<const ArrayType>) {
  ShardingFactors f;
  int first = 0;
  for (const ArrayType& x : c.operands) {
    f.operands.push_back(letters(x.shape.rank(), first));
    first += x.shape.rank();
  }
  f.results = f.operands;
  return f;
}

}  // namespace

constinit const OpDef kScan = {.op = OpKind::kScan,
                               .infer = infer_scan,
                               .vjp = vjp_structure,
                               .batch = batch_scan,
                               .shard = shard_whole,
                               .local = local_by_partitioner,
                               .cost = cost_scan};
constinit const OpDef kCheckpoint = {.op = OpKind::kCheckpoint,
                                     .infer = infer_checkpoint,
                                     .vjp = vjp_structure,
                                     .batch = batch_checkpoint,
                                     .shard = shard_whole,
                                     .local = local_by_partitioner,
                                     .cost = cost_checkpoint};
constinit const OpDef kName = {.op = OpKind::kName,
                               .infer = infer_name,
                               .vjp = vjp_identity,
                               .batch = batch_marks,
                               .shard = shard_elementwise,
                               .local = local_same,
                               .cost = cost_free};
constinit const OpDef kStopGradient = {.op = OpKind::kStopGradient,
                                       .infer = infer_mark<NoParams>,
                                       .vjp = no_cotangents,
                                       .batch = batch_marks,
                                       .shard = shard_elementwise,
                                       .local = local_same,
                                       .cost = cost_free};
constinit const OpDef kOptimizationBarrier = {.op = OpKind::kOptimizationBarrier,
                                              .infer = infer_barrier,
                                              .vjp = vjp_identity,
                                              .batch = batch_marks,
                                              .shard = shard_barrier,
                                              .local = local_same,
                                              .cost = cost_free};

}  // namespace stow::ops
