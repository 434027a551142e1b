#include "stowage/api/control.h"

#include <algorithm>
#include <map>

#include "stowage/api/control_internal.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// Whose value an array is: equal for arrays that a trace would capture once.
std::pair<const void*, uint32_t> identity_of(const Array& array) {
  const ArrayImpl& impl = *array.impl();
  if (impl.state == ArrayImpl::State::kTraced) return {impl.trace.get(), impl.id.value};
  if (impl.state == ArrayImpl::State::kConcrete) return {impl.storage.get(), 0};
  return {&impl, 0};
}

// Gives all branches the same inputs: the operands, then what any of them captures.
std::vector<Array> share_captures(std::vector<NestedTrace>& branches, size_t n_operands) {
  std::vector<Array> captures;
  std::map<std::pair<const void*, uint32_t>, size_t> number;
  for (const NestedTrace& branch : branches)
    for (const Array& array : branch.captures)
      if (number.try_emplace(identity_of(array), captures.size()).second) captures.push_back(array);
  for (NestedTrace& branch : branches) {
    const Graph& from = branch.graph;
    Graph graph;
    ValueMap map(from);
    for (size_t i = 0; i < n_operands; ++i)
      copy_input(from, i, graph, map);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < captures.size(); ++i)
      inputs.push_back(graph.add_input(captures[i].type(), fmt::format("captured/{}", i)));
    for (size_t i = 0; i < branch.captures.size(); ++i)
      map.set(from.inputs()[n_operands + i], inputs[number.at(identity_of(branch.captures[i]))]);
    const std::vector<RegionId> regions = import_regions(from, graph, RegionId());
    for (const Node& node : from.nodes()) copy_node(from, node, graph, map, regions);
    graph.set_outputs(map.images(from.outputs()));
    branch.graph = std::move(graph);
  }
  return captures;
}

std::string branch_name(const BranchRequest& request, size_t b) {
  if (std::string_view(request.what) == "cond") return b == 0 ? "false_fn" : "true_fn";
  return fmt::format("branch {}", b);
}

// Outputs that are weak in some branches take the type that they have in the others.
void widen_weak_outputs(std::vector<NestedTrace>& branches, size_t i) {
  WeakDType joint{DType::kBool, true};
  bool first = true;
  for (const NestedTrace& branch : branches) {
    const ArrayType& type = branch.graph.type(branch.graph.outputs()[i]);
    const WeakDType own{type.dtype, type.weak};
    joint = first ? own : promote(joint, own);
    first = false;
  }
  for (NestedTrace& branch : branches) {
    std::vector<ValueId> outputs = branch.graph.outputs();
    ArrayType type = branch.graph.type(outputs[i]);
    if (!type.weak || type.dtype == joint.dtype) continue;
    type.dtype = joint.dtype;
    type.weak = joint.weak;
    Node node{.op = OpKind::kConvert, .params = DTypeParams{joint.dtype}, .operands = {outputs[i]}};
    node.provenance = current_provenance();
    outputs[i] = branch.graph.node(branch.graph.add_node(std::move(node), {&type, 1})).result();
    branch.graph.set_outputs(std::move(outputs));
  }
}

void agree_on_outputs(const BranchRequest& request, std::vector<NestedTrace>& branches,
                      const std::vector<std::string>& paths) {
  for (size_t i = 0; i < paths.size(); ++i) {
    widen_weak_outputs(branches, i);
    for (size_t b = 1; b < branches.size(); ++b) {
      const Graph &one = branches[0].graph, &other = branches[b].graph;
      const ArrayType &type = one.type(one.outputs()[i]), &its = other.type(other.outputs()[i]);
      if (!(type == its))
        trace_error_here("[{}] {} is {} in {} and {} in {}", request.what,
                         leaf_name("output", paths[i]), to_string(type), branch_name(request, 0),
                         to_string(its), branch_name(request, b));
    }
  }
}

// A bool scalar of the predicate.
Array predicate_of(const Operand& pred) {
  if (pred.rank() != 0)
    trace_error_here("[cond] the predicate must be a scalar, got {}",
                     to_string(to_array(pred).type()));
  return pred.dtype().dtype == DType::kBool ? to_array(pred) : binary_op(OpKind::kNe, pred, 0);
}

// An i32 scalar that clamps to the same branch.
Array branch_number(const Operand& index, size_t n_branches) {
  const DType dtype = index.dtype().dtype;
  if (index.rank() != 0 || is_float(dtype) || dtype == DType::kBool)
    trace_error_here("[switch_] the index must be an integer scalar, got {}",
                     to_string(to_array(index).type()));
  if (dtype == DType::kI32) return with_weak(to_array(index), false);
  Array number = to_array(index, {dtype, false});
  if (dtype_bytes(dtype) >= 4) {
    const auto last = static_cast<int32_t>(n_branches) - 1;
    number = minimum(maximum(number, 0), last);
  }
  return convert_to(number, DType::kI32);
}

void check_loop_carry(std::string_view what, std::span<const Array> carry,
                      const std::vector<std::string>& paths) {
  for (size_t i = 0; i < carry.size(); ++i)
    if (carry[i].empty())
      trace_error_here("[{}] {} is an empty Array", what, leaf_name("carry", paths[i]));
}

std::vector<Array> record_while(const LoopBody& loop, std::vector<Array> carry,
                                const std::function<Array(std::span<const Array>)>& condition) {
  const size_t n_carries = carry.size();
  NestedTrace body = trace_loop_body(loop, carry);
  if (body.graph.outputs().size() != carry.size())
    trace_error_here("[{}] expected {} arrays from the body, as the carry has, got {}", loop.what,
                     n_carries, body.graph.outputs().size() - (carry.size() - n_carries));
  std::vector<ArrayType> types;
  for (const Array& c : carry) types.push_back(c.type());
  std::vector<std::string> names = loop.names;
  if (body.has_effects) names.push_back("effects");
  const SourceLocation here = context().site;
  NestedTrace test = trace_nested(loop.what, types, names, 0, [&](std::span<const Array> inputs) {
    const Array truth = condition(inputs.first(n_carries));
    const CallSiteScope back(here);
    if (!current_trace()->last_effect.empty())
      trace_error_here(
          "[{}] debug_print in the condition of a loop is not supported: print in its body",
          loop.what);
    if (truth.rank() != 0 || truth.dtype() != DType::kBool)
      trace_error_here("[{}] the condition must return a bool scalar, it returns {}", loop.what,
                       to_string(truth.type()));
    return std::vector<Array>{truth};
  });
  const WhileParams params{static_cast<int>(test.captures.size()),
                           static_cast<int>(body.captures.size())};
  std::vector<Array> operands = test.captures;
  operands.insert(operands.end(), body.captures.begin(), body.captures.end());
  operands.insert(operands.end(), carry.begin(), carry.end());
  std::vector<Array> results = record(OpKind::kWhile, params, operands,
                                      {std::make_shared<const Graph>(std::move(test.graph)),
                                       std::make_shared<const Graph>(std::move(body.graph))});
  return body.has_effects ? take_effects(std::move(results), n_carries) : results;
}

LoopBody loop_body(const char* what, const TreeRef& init) {
  LoopBody loop{.what = what, .carry_paths = paths_of(init)};
  for (const std::string& p : loop.carry_paths)
    loop.names.push_back(p.empty() ? "carry" : "carry/" + p);
  return loop;
}

}  // namespace

BranchResult run_branches(const BranchRequest& request) {
  const CallSiteScope site(request.index.at);
  BranchResult result;
  if (request.branches.empty())
    trace_error_here("[{}] expected at least one branch, got none", request.what);
  const auto body = [&]() -> std::vector<Array> {
    const bool is_cond = std::string_view(request.what) == "cond";
    const Array index = is_cond ? predicate_of(request.index)
                                : branch_number(request.index, request.branches.size());
    std::vector<Array> operands = leaves_of(request.operands);
    std::vector<std::string> paths = paths_of(request.operands);
    std::vector<ArrayType> types;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].empty())
        trace_error_here("[{}] operand {} is an empty Array", request.what, paths[i]);
      types.push_back(operands[i].type());
    }
    std::vector<NestedTrace> branches;
    std::vector<std::string> output_paths;
    for (size_t b = 0; b < request.branches.size(); ++b) {
      OwnedTree tree;
      branches.push_back(trace_nested(request.what, types, paths, operands.size(),
                                      [&](std::span<const Array> inputs) {
                                        tree = request.branches[b](inputs);
                                        return leaves_of(tree.ref);
                                      }));
      if (b == 0) {
        result.result = tree;
        output_paths = paths_of(tree.ref);
      } else {
        check_same_structure(result.result.ref, tree.ref,
                             fmt::format("[{}] the results of {} and {}:", request.what,
                                         branch_name(request, 0), branch_name(request, b)));
      }
    }
    agree_on_outputs(request, branches, output_paths);
    const bool has_effects =
        std::any_of(branches.begin(), branches.end(),
                    [](const NestedTrace& branch) { return branch.has_effects; });
    if (has_effects) std::for_each(branches.begin(), branches.end(), pass_effects);
    const std::vector<Array> captures = share_captures(branches, operands.size());
    operands.insert(operands.begin(), index);
    operands.insert(operands.end(), captures.begin(), captures.end());
    std::vector<GraphPtr> graphs;
    for (NestedTrace& branch : branches)
      graphs.push_back(std::make_shared<const Graph>(std::move(branch.graph)));
    std::vector<Array> results = record(OpKind::kCond, CondParams{}, operands, std::move(graphs));
    return has_effects ? take_effects(std::move(results), output_paths.size()) : results;
  };
  result.outputs = traced_or_run(request.what, body);
  return result;
}

namespace {

// The arrays that the body returns for the inputs. The code that records them refuses another
// number of arrays.
std::vector<Array> carry_of(const char* what, const LoopRequest& request,
                            std::span<const Array> inputs) {
  const OwnedTree result = request.body(inputs);
  std::vector<Array> leaves = leaves_of(result.ref);
  if (leaves.size() == leaves_of(request.init).size())
    check_same_structure(request.init, result.ref,
                         fmt::format("[{}] the carry and what the body returns for it:", what),
                         request.at);
  return leaves;
}

}  // namespace

std::vector<Array> run_while(const LoopRequest& request, const LeafFunction& condition) {
  const CallSiteScope site(request.at);
  return traced_or_run("while_loop", [&]() -> std::vector<Array> {
    LoopBody loop = loop_body("while_loop", request.init);
    loop.body = [&](std::span<const Array> inputs) {
      return carry_of("while_loop", request, inputs);
    };
    std::vector<Array> carry = leaves_of(request.init);
    check_loop_carry(loop.what, carry, loop.carry_paths);
    return record_while(loop, std::move(carry), [&](std::span<const Array> inputs) {
      return leaves_of(condition(inputs).ref).front();
    });
  });
}

std::vector<Array> run_fori(const LoopRequest& request, const Operand& lower,
                            const Operand& upper) {
  const CallSiteScope site(request.at);
  return traced_or_run("fori_loop", [&]() -> std::vector<Array> {
    for (const Operand* bound : {&lower, &upper})
      if (bound->rank() != 0 || is_float(bound->dtype().dtype) ||
          bound->dtype().dtype == DType::kBool)
        trace_error_here("[fori_loop] the bounds must be integer scalars, got {}",
                         to_string(to_array(*bound).type()));
    // As in JAX, the counter is weak where the lower bound is and keeps its dtype.
    const DType dtype = promote(lower.dtype(), upper.dtype()).dtype;
    const bool weak = lower.dtype().weak && lower.dtype().dtype == dtype;
    LoopBody loop = loop_body("fori_loop", request.init);
    loop.carry_paths.insert(loop.carry_paths.begin(), "counter");
    loop.names.insert(loop.names.begin(), "counter");
    const SourceLocation here = context().site;
    loop.body = [&](std::span<const Array> inputs) {
      std::vector<Array> outputs = carry_of("fori_loop", request, inputs);
      const CallSiteScope back(here);
      if (outputs.size() != inputs.size() - 1)
        trace_error_here("[fori_loop] the body returns {} arrays, the carry has {}", outputs.size(),
                         inputs.size() - 1);
      outputs.insert(outputs.begin(), binary_op(OpKind::kAdd, inputs[0],
                                                scalar_constant(1, WeakDType{dtype, weak})));
      return outputs;
    };
    std::vector<Array> carry = leaves_of(request.init);
    check_loop_carry(
        loop.what, carry,
        std::vector<std::string>(loop.carry_paths.begin() + 1, loop.carry_paths.end()));
    carry.insert(carry.begin(), to_array(lower, {dtype, weak}));
    std::vector<Array> results;
    if (lower.is_scalar() && upper.is_scalar()) {
      const int64_t first = lower.scalar().integer, end = upper.scalar().integer;
      int64_t length = 0;
      if (first < end && __builtin_sub_overflow(end, first, &length))
        trace_error_here("[fori_loop] expected fewer than 2^63 iterations, got those from {} to {}",
                         first, end);
      const size_t n_carries = carry.size();
      NestedTrace body = trace_loop_body(loop, carry);
      ScanParams params;
      params.length = length;
      params.n_consts = static_cast<int>(body.captures.size());
      params.n_carries = static_cast<int>(carry.size());
      std::vector<Array> operands = body.captures;
      operands.insert(operands.end(), carry.begin(), carry.end());
      results = record(OpKind::kScan, params, operands,
                       {std::make_shared<const Graph>(std::move(body.graph))});
      if (body.has_effects) results = take_effects(std::move(results), n_carries);
    } else {
      const Array end = to_array(upper, {dtype, false});
      results = record_while(loop, std::move(carry), [&](std::span<const Array> inputs) {
        return binary_op(OpKind::kLt, inputs[0], end);
      });
    }
    results.erase(results.begin());
    return results;
  });
}

}  // namespace stow
