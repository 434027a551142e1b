// Cond and While.
#include <algorithm>

#include "stowage/ops/batch.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

void check_sizes(const InferContext& c) {
  for (size_t i = 0; i < c.operands.size(); ++i)
    check_size(c, c.operand(i), fmt::format("operand {}", i));
}

// Inputs [first, first + n) of a nested graph take operands [at, at + n).
void check_inputs(const InferContext& c, const Graph& graph, std::string_view which,
                  std::string_view what, size_t first, size_t at, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (const ArrayType& input = graph.type(graph.inputs()[first + i]);
        !(c.operand(at + i) == input))
      c.error("{} {} is {}, the {} takes {}", what, i, to_string(c.operand(at + i)), which,
              to_string(input));
}

// ---- Cond ----

std::vector<ArrayType> infer_cond(const InferContext& c) {
  const auto& p = params_of<CondParams>(c);
  if (c.graphs.empty() || std::find(c.graphs.begin(), c.graphs.end(), nullptr) != c.graphs.end())
    c.error("takes at least 1 branch, got {}", c.graphs.size());
  if (c.operands.empty()) c.error("takes an index and the operands of its branches, got nothing");
  check_sizes(c);
  const ArrayType& index = c.operand(0);
  if (index.shape.rank() != 0 || (index.dtype != DType::kI32 && index.dtype != DType::kBool))
    c.error("the index must be i32[] or bool[], got {}", to_string(index));
  if (index.kind != MemoryKind::kDevice)
    c.error("the index must lie on the device, got {}", to_string(index));
  if (index.dtype == DType::kBool && c.graphs.size() != 2)
    c.error("a bool index chooses between 2 branches, got {}", c.graphs.size());

  std::vector<ArrayType> results;
  for (size_t b = 0; b < c.graphs.size(); ++b) {
    const Graph& branch = *c.graphs[b];
    if (branch.inputs().size() != c.operands.size() - 1)
      c.error("branch {} takes {} inputs, the operands are {}", b, branch.inputs().size(),
              c.operands.size() - 1);
    check_inputs(c, branch, fmt::format("branch {}", b), "operand", 0, 1, c.operands.size() - 1);
    if (b > 0 && branch.outputs().size() != results.size())
      c.error("branch {} gives {} outputs, branch 0 gives {}", b, branch.outputs().size(),
              results.size());
    for (size_t i = 0; i < branch.outputs().size(); ++i) {
      const ArrayType& type = branch.type(branch.outputs()[i]);
      if (b == 0) {
        results.push_back(type);
        continue;
      }
      if (!(type == results[i]))
        c.error("output {} is {} in branch 0 and {} in branch {}", i, to_string(results[i]),
                to_string(type), b);
      results[i].weak &= type.weak;
    }
  }
  if (p.n_residuals < 0 || static_cast<size_t>(p.n_residuals) > results.size())
    c.error("{} residuals of {} results", p.n_residuals, results.size());
  return results;
}

// Its rule for sums of work: that of the dearest branch.
Cost cost_cond(const InferContext& c, std::span<const ArrayType>) {
  Cost most;
  for (const GraphPtr& branch : c.graphs) {
    const Cost cost = graph_cost(*branch);
    most.flops = std::max(most.flops, cost.flops);
    most.bytes = std::max(most.bytes, cost.bytes);
  }
  return most;
}

[[noreturn]] Cotangents vjp_cond(const VjpContext&) {
  STOW_CHECK(false, "the gradient of cond is autodiff's");
  std::abort();
}

// ---- While ----

std::vector<ArrayType> infer_while(const InferContext& c) {
  const auto& p = params_of<WhileParams>(c);
  if (c.graphs.size() != 2 || !c.graphs[0] || !c.graphs[1])
    c.error("takes 2 nested graphs, got {}", c.graphs.size());
  check_sizes(c);
  const Graph &condition = *c.graphs[0], &body = *c.graphs[1];
  if (p.n_cond_consts < 0 || p.n_body_consts < 0 ||
      static_cast<size_t>(p.n_cond_consts) + static_cast<size_t>(p.n_body_consts) >
          c.operands.size())
    c.error("{} and {} consts of {} operands cannot be", p.n_cond_consts, p.n_body_consts,
            c.operands.size());
  const auto n_cond = static_cast<size_t>(p.n_cond_consts),
             n_body = static_cast<size_t>(p.n_body_consts);
  const size_t first_carry = n_cond + n_body, n_carries = c.operands.size() - first_carry;
  if (condition.inputs().size() != n_cond + n_carries)
    c.error("the condition takes {} inputs, its consts and the carries are {}",
            condition.inputs().size(), n_cond + n_carries);
  if (body.inputs().size() != n_body + n_carries)
    c.error("the body takes {} inputs, its consts and the carries are {}", body.inputs().size(),
            n_body + n_carries);
  check_inputs(c, condition, "condition", "const", 0, 0, n_cond);
  check_inputs(c, condition, "condition", "carry", n_cond, first_carry, n_carries);
  check_inputs(c, body, "body", "const", 0, n_cond, n_body);
  check_inputs(c, body, "body", "carry", n_body, first_carry, n_carries);
  if (condition.outputs().size() != 1)
    c.error("the condition gives {} outputs, not one bool[]", condition.outputs().size());
  if (const ArrayType& type = condition.type(condition.outputs()[0]);
      type.dtype != DType::kBool || type.shape.rank() != 0 || type.kind != MemoryKind::kDevice)
    c.error("the condition must give a bool[], got {}", to_string(type));
  if (body.outputs().size() != n_carries)
    c.error("the body gives {} outputs, the carries are {}", body.outputs().size(), n_carries);
  std::vector<ArrayType> results;
  for (size_t k = 0; k < n_carries; ++k) {
    const ArrayType &in = c.operand(first_carry + k), &out = body.type(body.outputs()[k]);
    if (!(in == out))
      c.error("carry {} is {} going into the body and {} coming out", k, to_string(in),
              to_string(out));
    results.push_back(out);
    results.back().weak = in.weak && out.weak;
  }
  return results;
}

// One index for all examples: one branch over the batch. Else each example takes its own.
Batched batch_cond(const BatchContext& c) {
  if (c.batched(0)) return batch_by_loop(c);
  const std::vector<int64_t> in(c.axes.begin() + 1, c.axes.end());
  const std::vector<int64_t> out(static_cast<size_t>(c.node.n_results), 0);
  std::vector<GraphPtr> branches;
  for (const GraphPtr& branch : c.node.graphs)
    branches.push_back(
        std::make_shared<const Graph>(batch_graph(*branch, c.size, in, out).graph));
  return {c.builder.add(OpKind::kCond, c.node.params, c.operands, std::move(branches)), out};
}

// The number of iterations is not known: counts one.
Cost cost_while(const InferContext& c, std::span<const ArrayType>) {
  const Cost condition = graph_cost(*c.graphs[0]), body = graph_cost(*c.graphs[1]);
  return {condition.flops + body.flops, condition.bytes + body.bytes};
}

[[noreturn]] Cotangents vjp_while(const VjpContext& c) {
  const std::string place = to_string(c.node.provenance);
  trace_error(
      "[while_loop] has no reverse-mode derivative, for how often it runs is not known; use "
      "fori_loop with C++ integers as bounds, or scan{}{}",
      place.empty() ? "" : "\n  at ", place);
}

}  // namespace

constinit const OpDef kCond = {.op = OpKind::kCond,
                               .infer = infer_cond,
                               .vjp = vjp_cond,
                               .batch = batch_cond,
                               .shard = shard_whole,
                               .local = local_by_partitioner,
                               .cost = cost_cond};
constinit const OpDef kWhile = {.op = OpKind::kWhile,
                                .infer = infer_while,
                                .vjp = vjp_while,
                                .batch = batch_by_loop,
                                .shard = shard_whole,
                                .local = local_by_partitioner,
                                .cost = cost_while};

}  // namespace stow::ops
