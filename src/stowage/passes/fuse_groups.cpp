// Assigns nodes to units: elementwise work and reductions join the programs of their operands.
#include <algorithm>
#include <utility>

#include "stowage/passes/fuser.h"

namespace stow::fusion {

void Fuser::place(NodeId id) {
  if (!is_made(id)) return;
  const Node& node = graph_.node(id);
  const OpClass cls = op_class(node.op);
  if (cls == OpClass::kElementwise || cls == OpClass::kReduce) {
    place_rows(id);
    return;
  }
  Unit unit;
  unit.nodes = {id};
  unit.kind = node.op == OpKind::kScan          ? UnitKind::kScan
              : node.op == OpKind::kCond        ? UnitKind::kCond
              : node.op == OpKind::kWhile       ? UnitKind::kWhile
              : node.op == OpKind::kConcatenate ? UnitKind::kConcat
              : cls == OpClass::kView           ? UnitKind::kCopy
                                                : UnitKind::kOp;
  add_unit(std::move(unit), node);
}

void Fuser::place_rows(NodeId id) {
  const Node& node = graph_.node(id);
  if (fuse_ && accumulate(id)) return;
  Unit own = own_unit(id);
  if (!fuse_) {
    add_unit(std::move(own), node);
    return;
  }
  std::vector<int> candidates;
  for (ValueId v : node.operands) {
    const int u = use(use(v).root).unit;
    if (u >= 0 && unit(u).kind == UnitKind::kRows &&
        std::find(candidates.begin(), candidates.end(), u) == candidates.end())
      candidates.push_back(u);
  }
  // The latest unit comes first, but units that read nothing large join others instead of being
  // joined.
  std::sort(candidates.rbegin(), candidates.rend());
  if (candidates.size() > 1)
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](int u) { return !reads_nothing_large(u); });
  int home = -1;
  for (int u : candidates)
    if (home < 0) {
      if (may_join(id, own, u)) join(id, own, home = u);
    } else if (may_merge(u, home)) {
      merge(u, home);
    }
  if (home < 0) add_unit(std::move(own), node);
}

void Fuser::add_unit(Unit unit, const Node& node) {
  const int u = static_cast<int>(result_.units.size());
  first_node_.push_back(unit.nodes.front().index());
  reached_.push_back(unit.nodes.back().index());
  readers_.emplace_back();
  result_.units.push_back(std::move(unit));
  for (ValueId v : node.operands) link(u, use(use(v).root).unit);
  for (int i = 0; i < node.n_results; ++i)
    if (ValueUse& made = use(node.result(i)); made.root == node.result(i)) made.unit = u;
}

void Fuser::link(int u, int operand) {
  if (operand < 0 || operand == u) return;
  add_operand_unit(result_.units[static_cast<size_t>(u)], operand);
  readers_[static_cast<size_t>(operand)].push_back(u);
  raise(u, reached_[static_cast<size_t>(operand)]);
}

void Fuser::raise(int u, size_t node) {
  std::vector<int> stack = {u};
  while (!stack.empty()) {
    const auto i = static_cast<size_t>(stack.back());
    stack.pop_back();
    if (reached_[i] >= node) continue;
    reached_[i] = node;
    stack.insert(stack.end(), readers_[i].begin(), readers_[i].end());
  }
}

void Fuser::add_operand_unit(Unit& unit, int operand) {
  if (operand >= 0 && std::find(unit.operand_units.begin(), unit.operand_units.end(), operand) ==
                          unit.operand_units.end())
    unit.operand_units.push_back(operand);
}

void Fuser::absorb(int from, int into) {
  Unit& gone = result_.units[static_cast<size_t>(from)];
  Unit& stays = result_.units[static_cast<size_t>(into)];
  for (NodeId m : gone.nodes) use(graph_.node(m).first_result).unit = into;
  std::erase(stays.operand_units, from);
  for (int o : gone.operand_units) add_operand_unit(stays, o);
  gone.nodes.clear();
  gone.operand_units.clear();
}

bool Fuser::accumulate(NodeId id) {
  const Node& node = graph_.node(id);
  // The product over an empty axis is 0, and -0 + 0 is 0, not -0.
  const auto has_terms = [&](ValueId v) {
    const Node& product = graph_.def(v);
    const Dims& dims = graph_.type(product.operands[0]).shape.dims();
    const auto& contracted = product.as<DotParams>().lhs_contract;
    return std::all_of(contracted.begin(), contracted.end(),
                       [&](int64_t axis) { return dims[static_cast<size_t>(axis)] > 0; });
  };
  if (node.op != OpKind::kAdd || graph_.type(node.first_result).dtype != DType::kF32) return false;
  for (int i = 0; i < 2; ++i) {
    const ValueId sum = node.operands[static_cast<size_t>(i)];
    const ValueId product = node.operands[static_cast<size_t>(1 - i)];
    if (n_uses(sum) != 1 || n_uses(product) != 1 || !is_product(product) || !has_terms(product) ||
        !(is_carried(sum, node.first_result) || is_sum_of_products(sum)))
      continue;
    const int u = use(product).unit, maker = use(sum).unit;
    if (maker >= 0 && reaches({maker}, u)) continue;
    result_.units[static_cast<size_t>(u)].nodes.push_back(id);
    raise(u, id.index());
    link(u, maker);
    use(node.first_result).unit = u;
    return true;
  }
  return false;
}

bool Fuser::is_carried(ValueId sum, ValueId result) const {
  return graph_.is_input(sum) && n_uses(result) == 1 && is_output(result);
}

bool Fuser::is_sum_of_products(ValueId v) {
  if (graph_.is_input(v) || use(v).unit < 0 || use(v).root != v) return false;
  const Unit& maker = unit(use(v).unit);
  return maker.kind == UnitKind::kOp && is_product(graph_.node(maker.nodes[0]).first_result);
}

bool Fuser::is_output(ValueId v) const {
  return std::find(graph_.outputs().begin(), graph_.outputs().end(), v) != graph_.outputs().end();
}

Unit Fuser::own_unit(NodeId id) {
  const Node& node = graph_.node(id);
  Unit unit;
  unit.kind = UnitKind::kRows;
  unit.nodes = {id};
  if (op_class(node.op) == OpClass::kElementwise) {
    unit.dims = graph_.type(node.first_result).shape.dims();
    return unit;
  }
  unit.dims = graph_.type(node.operands[0]).shape.dims();
  set_space(unit, space_of(graph_, node));
  return unit;
}

void Fuser::set_space(Unit& unit, const SumSpace& space) {
  const Dims dims = full_dims(unit);
  unit.axes = space.axes;
  for (size_t i = 0; i < unit.axes.size(); ++i)
    unit.dims[i] = dims[static_cast<size_t>(unit.axes[i])];
  unit.n_row_dims = space.n_row_dims;
  unit.n_group_dims = space.n_group_dims;
}

SumSpace Fuser::space_of_unit(const Unit& unit) {
  return {unit.axes, unit.n_group_dims, unit.n_row_dims};
}

void Fuser::join(NodeId id, const Unit& own, int u) {
  Unit& g = result_.units[static_cast<size_t>(u)];
  const Node& node = graph_.node(id);
  if (op_class(node.op) == OpClass::kReduce) {
    SumSpace space = space_of_unit(own);
    if (own.axes == g.axes) unite(space, space_of_unit(g));
    set_space(g, space);
  }
  g.nodes.push_back(id);
  raise(u, id.index());
  for (ValueId v : node.operands) link(u, use(use(v).root).unit);
  for (int i = 0; i < node.n_results; ++i) use(node.result(i)).unit = u;
}

void Fuser::merge(int a, int into) {
  Unit& x = result_.units[static_cast<size_t>(a)];
  Unit& y = result_.units[static_cast<size_t>(into)];
  y.n_row_dims = common_dims(x.n_row_dims, y.n_row_dims);
  y.n_group_dims = common_dims(x.n_group_dims, y.n_group_dims);
  for (NodeId m : x.nodes)
    for (int i = 0; i < graph_.node(m).n_results; ++i) use(graph_.node(m).result(i)).unit = into;
  y.nodes.insert(y.nodes.end(), x.nodes.begin(), x.nodes.end());
  std::sort(y.nodes.begin(), y.nodes.end());
  for (int o : std::vector<int>(x.operand_units)) link(into, o);
  std::erase_if(y.operand_units, [&](int o) { return o == a || o == into; });
  x.nodes.clear();
  x.operand_units.clear();
  first_node_[static_cast<size_t>(into)] = y.nodes.front().index();
  raise(into, reached_[static_cast<size_t>(a)]);
  const std::vector<int> readers = std::move(readers_[static_cast<size_t>(a)]);
  for (int r : readers) {
    std::erase(result_.units[static_cast<size_t>(r)].operand_units, a);
    link(r, into);
  }
}

}  // namespace stow::fusion
