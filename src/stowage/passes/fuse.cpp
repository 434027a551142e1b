#include "stowage/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "stowage/ir/utilities.h"
#include "stowage/passes/fuser.h"
#include "stowage/passes/view.h"

namespace stow {


ValueId skip_passthrough(const Graph& graph, ValueId v) {
  while (!graph.is_input(v)) {
    const Node& node = graph.def(v);
    auto i = static_cast<size_t>(graph.value(v).index);
    if (node.op == OpKind::kScan) {
      const auto& p = node.as<ScanParams>();
      if (i >= static_cast<size_t>(p.n_carries)) break;
      const Graph& body = *node.graphs[0];
      const size_t operand = static_cast<size_t>(p.n_consts) + i;
      if (skip_passthrough(body, body.outputs()[i]) != body.inputs()[operand]) break;
      i = operand;
    } else if (op_class(node.op) != OpClass::kIdentity) {
      break;
    }
    v = node.operands[i];
  }
  return v;
}

Dims full_dims(const Unit& unit) {
  if (unit.axes.empty()) return unit.dims;
  Dims dims(unit.dims.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[static_cast<size_t>(unit.axes[i])] = unit.dims[i];
  return dims;
}

Unit prologue_unit(const Graph& graph, const Unit& unit, size_t i) {
  const Unit::Prologue& made = unit.prologues[i];
  Unit rows;
  rows.kind = UnitKind::kRows;
  rows.nodes = made.nodes;
  rows.dims = graph.type(made.value).shape.dims();
  rows.n_row_dims = made.n_row_dims;
  return rows;
}

bool adds_to_sum(const Unit& unit) {
  return unit.kind == UnitKind::kOp &&
         unit.nodes.size() - unit.prologues[0].nodes.size() - unit.prologues[1].nodes.size() == 2;
}

bool is_product_or_prologue(const Unit& unit, NodeId node) {
  if (unit.epilogue_output.valid() && node == unit.nodes[0]) return true;
  return std::any_of(unit.prologues.begin(), unit.prologues.end(), [&](const Unit::Prologue& made) {
    return std::find(made.nodes.begin(), made.nodes.end(), node) != made.nodes.end();
  });
}

int iota_dim(const Graph& graph, const Units& units, const Unit& unit, ValueId v) {
  const ValueUse& use = units.uses[v.index()];
  const View& window = units.windows[v.index()];
  if (!units.uses[use.root.index()].lazy_iota || window.dims != full_dims(unit)) return -1;
  const Shape& shape = graph.type(use.root).shape;
  const auto axis = static_cast<size_t>(graph.def(use.root).as<IotaParams>().axis);
  const auto dim_of = [&](size_t of_axis) {
    const auto at = std::find(unit.axes.begin(), unit.axes.end(), static_cast<int64_t>(of_axis));
    return static_cast<int>(unit.axes.empty() ? of_axis : at - unit.axes.begin());
  };
  if (use.canon == use.root) return dim_of(axis);
  // Elements of the root are their own positions if no other axis is longer than 1.
  if (shape.elems() != shape.dims()[axis] || window.offset_bytes != 0) return -1;
  int found = -1;
  for (size_t i = 0; i < window.dims.size(); ++i) {
    if (window.dims[i] == 1 || window.strides[i] == 0) continue;
    if (found >= 0 || window.strides[i] != 1) return -1;
    found = dim_of(i);
  }
  return found;
}

bool is_row_value(const Unit& unit, const Shape& shape) {
  if (!unit.axes.empty() || unit.n_row_dims < 0 ||
      static_cast<size_t>(unit.n_row_dims) == unit.dims.size())
    return false;
  const size_t n = static_cast<size_t>(unit.n_row_dims);
  const Dims& dims = shape.dims();
  if (dims.size() < n ||
      !std::equal(dims.begin(), dims.begin() + unit.n_row_dims, unit.dims.begin()))
    return false;
  if (dims.size() == n) return true;
  return dims.size() == unit.dims.size() &&
         std::all_of(dims.begin() + unit.n_row_dims, dims.end(),
                     [](int64_t d) { return d == 1; }) &&
         dims != unit.dims;
}

Units fuse(const Graph& graph, const std::vector<View>& input_views, bool fuse,
           int64_t least_epilogue, int threads) {
  return fusion::Fuser(graph, input_views, fuse, least_epilogue, threads).run();
}

namespace fusion {

Units Fuser::run() {
  resolve_values();
  if (fuse_) {
    value_readers_ = find_value_readers(graph_);
    depths_ = find_depths(graph_);
  }
  count_heavy();
  n_uses_ = count_uses(graph_);
  readers_of_root_.resize(graph_.n_values());
  for (size_t n = 0; n < graph_.n_nodes(); ++n)
    if (is_made(NodeId(n)))
      for (ValueId v : graph_.nodes()[n].operands)
        readers_of_root_[use(v).root.index()].push_back(NodeId(n));
  for (size_t n = 0; n < graph_.n_nodes(); ++n) place(NodeId(n));
  if (fuse_) {
    add_epilogues();
    add_prologues();
  }
  compact();
  fill_leaves();
  mark_needed();
  return std::move(result_);
}

void Fuser::resolve_values() {
  result_.uses.resize(graph_.n_values());
  result_.windows.resize(graph_.n_values());
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const ValueId v = graph_.inputs()[i];
    result_.windows[v.index()] = input_views_[i];
    use(v).canon = use(v).root = v;
  }
  copies_.resize(graph_.n_nodes());
  for (size_t n = 0; n < graph_.n_nodes(); ++n) {
    const Node& node = graph_.nodes()[n];
    for (int i = 0; i < node.n_results; ++i) {
      const ValueId v = node.result(i);
      ValueUse& u = use(v);
      u.canon = u.root = v;
      result_.windows[v.index()] = contiguous_view(BufferId(), graph_.type(v));
    }
    const OpClass cls = op_class(node.op);
    const ValueId v = node.first_result;
    if (node.op == OpKind::kConstant) use(v).splat = node.as<ConstantParams>().is_splat();
    if (node.op == OpKind::kIota) use(v).lazy_iota = true;
    if (node.op == OpKind::kAttention)
      use(node.result(1)).needs_contiguous = true;  // has no strides
    if (cls == OpClass::kIdentity) {
      for (int i = 0; i < node.n_results; ++i) {
        const ValueUse from = use(node.operands[static_cast<size_t>(i)]);
        use(node.result(i)) = from;
        result_.windows[node.result(i).index()] =
            result_.windows[node.operands[static_cast<size_t>(i)].index()];
      }
    } else if (node.op == OpKind::kScan) {
      const auto& p = node.as<ScanParams>();
      for (int k = 0; k < p.n_carries; ++k) {
        const ValueId init = node.operands[static_cast<size_t>(p.n_consts + k)];
        if (skip_passthrough(graph_, node.result(k)) != skip_passthrough(graph_, init)) continue;
        use(node.result(k)) = use(init);
        result_.windows[node.result(k).index()] = result_.windows[init.index()];
      }
    } else if (cls == OpClass::kView) {
      const ValueUse from = use(node.operands[0]);
      use(v).splat = from.splat;
      const std::optional<View> window =
          apply_view_op(graph_, node, result_.windows[node.operands[0].index()]);
      if (window) {
        use(v).root = from.root;
        result_.windows[v.index()] = *window;
        if (node.op == OpKind::kReshape) use(from.root).needs_contiguous = true;
      } else {
        copies_[n] = true;
      }
    }
  }
}

bool Fuser::is_made(NodeId id) const {
  const Node& node = graph_.node(id);
  const OpClass cls = op_class(node.op);
  if (cls == OpClass::kIdentity) return false;
  if (cls == OpClass::kView)
    return copies_[id.index()] && !result_.uses[node.first_result.index()].splat;
  if (node.op == OpKind::kIota) return false;
  if (node.op == OpKind::kConstant) return !node.as<ConstantParams>().is_splat();
  return true;
}

void Fuser::compact() {
  std::vector<int> map(result_.units.size(), -1);
  std::vector<Unit> kept;
  for (size_t u = 0; u < result_.units.size(); ++u)
    if (!result_.units[u].nodes.empty()) {
      map[u] = static_cast<int>(kept.size());
      kept.push_back(std::move(result_.units[u]));
    }
  for (Unit& u : kept)
    for (int& o : u.operand_units) o = map[static_cast<size_t>(o)];
  for (ValueUse& u : result_.uses)
    if (u.unit >= 0) u.unit = map[static_cast<size_t>(u.unit)];
  result_.units = std::move(kept);
}

void Fuser::fill_leaves() {
  const size_t n_units = result_.units.size();
  for (size_t u = 0; u < n_units; ++u) {
    const std::vector<NodeId> nodes = result_.units[u].nodes;
    for (NodeId m : nodes)
      for (ValueId v : graph_.node(m).operands) {
        if (is_step_of(static_cast<int>(u), m, v)) continue;
        fill(v, static_cast<int>(u));
      }
  }
  for (ValueId v : graph_.outputs()) fill(v, -1);
}

bool Fuser::is_step_of(int u, NodeId m, ValueId v) {
  const Unit& reader = unit(u);
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<NodeId>& nodes = reader.prologues[i].nodes;
    if (std::find(nodes.begin(), nodes.end(), m) != nodes.end())
      return use(v).splat || iota_dim(graph_, result_, prologue_unit(graph_, reader, i), v) >= 0;
  }
  return reader.kind == UnitKind::kRows && !is_product_or_prologue(reader, m) &&
         (use(v).splat || iota_dim(graph_, result_, reader, v) >= 0);
}

void Fuser::fill(ValueId v, int reader) {
  // A splat that is read through views is filled where the first view begins: all its elements are
  // equal.
  const ValueId root = use(v).splat ? use(v).canon : use(v).root;
  if (graph_.is_input(root) || (!use(root).splat && !use(root).lazy_iota)) return;
  if (use(root).unit < 0) {
    Unit unit;
    unit.kind = UnitKind::kRows;
    unit.nodes = {graph_.value(root).node};
    unit.dims = graph_.type(root).shape.dims();
    use(root).unit = static_cast<int>(result_.units.size());
    use(root).root = root;
    result_.units.push_back(std::move(unit));
  }
  // A filled value has the strides of its own elements, not those of a broadcast.
  if (use(v).splat) result_.windows[v.index()] = contiguous_view(BufferId(), graph_.type(v));
  if (reader >= 0) add_operand_unit(result_.units[static_cast<size_t>(reader)], use(root).unit);
}

void Fuser::mark_needed() {
  for (size_t u = 0; u < result_.units.size(); ++u)
    for (NodeId m : result_.units[u].nodes)
      for (ValueId v : graph_.node(m).operands) {
        const ValueId root = effective_root(v);
        if (use(root).unit != static_cast<int>(u)) use(root).needs_memory = true;
      }
  for (ValueId v : graph_.outputs()) use(effective_root(v)).needs_memory = true;
}

ValueId Fuser::effective_root(ValueId v) {
  if (use(v).splat && use(use(v).canon).unit >= 0) return use(v).canon;
  return use(v).root;
}

}  // namespace fusion
}  // namespace stow
