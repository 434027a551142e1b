#include "stowage/passes/rows.h"

#include <algorithm>
#include <cstring>

namespace stow {
namespace {

bool is_column_reduce(const Graph& graph, const Node& node) {
  const auto& axes = node.as<AxesParams>().axes;
  const int last = graph.type(node.operands[0]).shape.rank() - 1;
  return last >= 0 && std::find(axes.begin(), axes.end(), last) == axes.end();
}

uint64_t splat_bits(const Graph& graph, ValueId v) {
  v = skip_passthrough(graph, v);
  while (graph.def(v).op != OpKind::kConstant)
    v = skip_passthrough(graph, graph.def(v).operands[0]);
  const auto& data = graph.def(v).as<ConstantParams>().data;
  uint64_t bits = 0;
  std::memcpy(&bits, data.data(), data.size());
  return bits;
}

// Returns the number of the step, or of an equal one in the program. Passes leave equal nodes if
// one is to be recomputed in the backward part; a program needs no second one.
int32_t add_step(RowProgram& program, const Step& step) {
  const auto at = std::find(program.steps.begin(), program.steps.end(), step);
  if (at != program.steps.end()) return static_cast<int32_t>(at - program.steps.begin());
  program.steps.push_back(step);
  return static_cast<int32_t>(program.steps.size() - 1);
}

}  // namespace

RowsBuilder::RowsBuilder(const Graph& graph, const Unit& unit, const Units& units, int unit_index,
                         ValueId only)
    : graph_(graph),
      unit_(unit),
      units_(units),
      unit_index_(unit_index),
      n_row_dims_(unit.n_row_dims >= 0 ? unit.n_row_dims
                                       : std::max(0, static_cast<int>(unit.dims.size()) - 1)),
      n_group_dims_(std::max(0, unit.n_group_dims)) {
  // The product's result is read first and overwritten first.
  if (unit.epilogue_output.valid()) {
    loads_.push_back(graph.node(unit.nodes[0]).first_result);
    stores_.push_back(unit.epilogue_output);
  }
  for (NodeId m : unit.nodes) {
    if (is_product_or_prologue(unit, m)) continue;
    const Node& node = graph.node(m);
    for (ValueId v : node.operands) {
      const ValueId canon = units.uses[v.index()].canon;
      if (is_step(v) || op_class(node.op) == OpClass::kView) continue;
      if (std::find(loads_.begin(), loads_.end(), canon) == loads_.end()) loads_.push_back(canon);
    }
    for (int i = 0; i < node.n_results; ++i)
      if (const ValueId v = node.result(i);
          only.valid() ? v == only
                       : units.uses[v.index()].needs_memory && v != unit.epilogue_output)
        (graph.type(v).elems() > 0 ? stores_ : empty_).push_back(v);
  }
}

// True for values that the program makes itself: splats, iotas of its space, values of members.
bool RowsBuilder::is_step(ValueId v) const {
  const ValueUse& use = units_.uses[v.index()];
  if (use.splat) return true;
  if (iota_dim(graph_, units_, unit_, v) >= 0) return true;
  return is_member(use.root);
}

bool RowsBuilder::is_member(ValueId root) const {
  return units_.uses[root.index()].unit == unit_index_ &&
         !is_product_or_prologue(unit_, graph_.value(root).node);
}

int32_t RowsBuilder::operand_step(RowProgram& program, std::map<ValueId, int32_t>& steps,
                                  ValueId v) const {
  const ValueUse& use = units_.uses[v.index()];
  if (use.splat) {
    Step step;
    step.kind = StepKind::kConstant;
    step.dtype = graph_.type(v).dtype;
    step.imm = splat_bits(graph_, v);
    return add_step(program, step);
  }
  if (const auto it = steps.find(use.canon); it != steps.end()) return it->second;
  if (is_member(use.root)) {
    // A member's row value may be read through broadcasts and reshapes.
    const auto it = steps.find(use.root);
    STOW_CHECK(it != steps.end(), "a fused operand is not made yet");
    return it->second;
  }
  const auto load = std::find(loads_.begin(), loads_.end(), use.canon);
  Step step;
  if (load != loads_.end()) {
    step.kind = StepKind::kLoad;
    step.index = static_cast<int32_t>(load - loads_.begin());
  } else {
    step.kind = StepKind::kIota;
    step.index = iota_dim(graph_, units_, unit_, v);
  }
  step.dtype = graph_.type(v).dtype;
  return steps[use.canon] = add_step(program, step);
}

// Returns strides along the iteration space for a window that is full, one value per row, or one
// per column.
Dims RowsBuilder::program_strides(const View& view) const {
  const size_t rank = unit_.dims.size(), rows = static_cast<size_t>(n_row_dims_);
  Dims strides(rank, 0);
  if (!unit_.axes.empty()) {
    for (size_t i = 0; i < rank; ++i)
      if (view.dims.size() == rank) strides[i] = view.strides[static_cast<size_t>(unit_.axes[i])];
    return strides;
  }
  if (view.dims == unit_.dims) return view.strides;
  for (size_t i = 0; i < rows && i < view.dims.size(); ++i) strides[i] = view.strides[i];
  return strides;
}

RowProgram RowsBuilder::build(const std::vector<View>& inputs,
                              const std::vector<View>& outputs) const {
  RowProgram program;
  program.dims = unit_.dims;
  program.n_row_dims = n_row_dims_;
  program.n_group_dims = n_group_dims_;
  for (const View& view : inputs) {
    Dims strides = program_strides(view);
    // A window without elements, even a broadcast, must not look like one value for all points.
    for (size_t i = 0; i < strides.size() && view.elems() == 0; ++i)
      if (unit_.dims[i] == 0) strides[i] = 1;
    program.inputs.push_back({view.dtype, std::move(strides)});
  }

  std::map<ValueId, int32_t> steps;
  const auto output_index = [&](ValueId v) {
    const auto it = std::find(stores_.begin(), stores_.end(), v);
    return it == stores_.end() ? -1 : static_cast<int32_t>(it - stores_.begin());
  };
  program.outputs.resize(outputs.size());
  for (NodeId m : unit_.nodes) {
    if (is_product_or_prologue(unit_, m)) continue;
    const Node& node = graph_.node(m);
    const ValueId v = node.first_result;
    const int32_t out = output_index(v);
    Step step;
    step.op = node.op;
    step.dtype = graph_.type(v).dtype;
    const bool reduce = op_class(node.op) == OpClass::kReduce;
    const bool columns = reduce && is_column_reduce(graph_, node);
    if (op_class(node.op) == OpClass::kElementwise || reduce) {
      for (size_t i = 0; i < node.operands.size(); ++i)
        step.args[i] = operand_step(program, steps, node.operands[i]);
      step.kind = !reduce    ? StepKind::kCompute
                  : columns ? StepKind::kReduceColumns
                            : StepKind::kReduceRow;
      if (columns) step.index = out;
    } else {  // a leaf that is filled
      if (node.op == OpKind::kIota) {
        step.kind = StepKind::kIota;
        step.index = static_cast<int32_t>(node.as<IotaParams>().axis);
      } else {
        step.kind = StepKind::kConstant;
        step.imm = splat_bits(graph_, v);
      }
    }
    if (columns && out < 0) continue;  // nobody reads it
    const int32_t at = add_step(program, step);
    steps[v] = at;
    if (out < 0) continue;
    const View& view = outputs[static_cast<size_t>(out)];
    RowOperand& operand = program.outputs[static_cast<size_t>(out)];
    operand.dtype = view.dtype;
    if (reduce) {
      // Kept axes: the rows of a row reduction, the groups and columns of a column reduction.
      operand.strides.assign(unit_.dims.size(), 0);
      const auto first = static_cast<size_t>(columns ? n_row_dims_ - n_group_dims_ : 0);
      const auto groups = static_cast<size_t>(columns ? n_group_dims_ : 0);
      for (size_t i = 0; i < view.strides.size(); ++i)
        operand.strides[i < groups ? i : first + i] = view.strides[i];
    } else {
      operand.strides = program_strides(view);
    }
    if (!columns) {
      Step store;
      store.kind = StepKind::kStore;
      store.dtype = step.dtype;
      store.index = out;
      store.args[0] = at;
      program.steps.push_back(store);
    }
  }
  return program;
}

RowProgram copy_program(const View& from, const View& to) {
  STOW_CHECK(from.dims == to.dims, "a copy between windows of different extents");
  RowProgram program;
  program.dims = to.dims;
  program.n_row_dims = std::max(0, static_cast<int>(to.dims.size()) - 1);
  program.inputs = {{from.dtype, from.strides}};
  program.outputs = {{to.dtype, to.strides}};
  Step load;
  load.kind = StepKind::kLoad;
  load.dtype = from.dtype;
  Step store;
  store.kind = StepKind::kStore;
  store.dtype = from.dtype;
  store.args[0] = 0;
  program.steps = {load, store};
  return program;
}

}  // namespace stow
