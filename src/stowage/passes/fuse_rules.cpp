// Rules for nodes and units that may be one row program without making values wait in memory.
#include <algorithm>
#include <set>
#include <utility>

#include "stowage/passes/fuser.h"

namespace stow::fusion {
namespace {

// Most nodes of a program that reads any number of arrays, which are all live at once.
constexpr size_t kMaxMembers = 96;
// Most nodes of a program that reads few arrays: an update with 8-bit moments has about a hundred.
constexpr size_t kMaxMembersOfFew = 128, kFewArrays = 16;
// Elements of a row that stay in a near cache between two passes over the row.
constexpr int64_t kMaxWholeRow = int64_t{1} << 14;
// Ops with kernels of their own that may lie between fused forward and backward work: as many as a
// loss has.
constexpr int kNearHeavyNodes = 3;
// The same limit between recomputed values and backward work: one product of a layer.
constexpr int kNearRecomputed = 1;

}  // namespace

bool Fuser::may_join(NodeId id, const Unit& own, int u) {
  const Unit& g = unit(u);
  if ((g.nodes.size() >= kMaxMembers && !reads_few(g, id)) || is_far(g.nodes.back(), id) ||
      is_far_from_clones(u, id) || would_wait_beside(u, id))
    return false;
  const Node& node = graph_.node(id);
  Unit joined = g;
  const bool reduces = op_class(node.op) == OpClass::kReduce;
  const ValueId shaped = reduces ? node.operands[0] : node.first_result;
  const Shape& shape = graph_.type(shaped).shape;
  const bool full = is_full(shaped, g);
  if (full) {
    SumSpace space = space_of_unit(g);
    if (reduces && own.axes != g.axes) {
      if (!may_permute_axes(u, space_of_unit(own))) return false;
      space = space_of_unit(own);
      set_space(joined, space);
    } else if (reduces) {
      if (!unite(space, space_of_unit(own))) return false;
      joined.n_row_dims = space.n_row_dims;
      joined.n_group_dims = space.n_group_dims;
    } else if (is_wanted_elsewhere(node.first_result, u)) {
      return false;
    }
    if (joined.n_row_dims != g.n_row_dims && !columns_fit(joined)) return false;
    if (!groups_fit(joined, reduces ? id : NodeId())) return false;
  } else if (op_class(node.op) == OpClass::kReduce || !is_row_value(g, shape)) {
    return false;
  }
  for (ValueId v : node.operands) {
    if (!readable(v, joined, u, full)) return false;
    if (full && reads_long_row_value(v, joined, u)) return false;
  }
  return !reaches_outside(node, u);
}

bool Fuser::may_merge(int a, int into) {
  const Unit &x = unit(a), &y = unit(into);
  SumSpace space = space_of_unit(x);
  if (x.dims != y.dims || !unite(space, space_of_unit(y)) ||
      x.nodes.size() + y.nodes.size() > kMaxMembers || is_far(x.nodes.back(), y.nodes.back()) ||
      is_far_from_clones(a, y.nodes.back(), into) || is_far_from_clones(into, x.nodes.back(), a))
    return false;
  for (const auto& [from, other] : {std::pair{a, into}, std::pair{into, a}})
    for (NodeId m : unit(from).nodes)
      if (would_wait_beside(other, m)) return false;
  // False if a value would have to be stored that only later reductions of other spaces read.
  for (const auto& [from, other] : {std::pair{a, into}, std::pair{into, a}})
    for (NodeId m : unit(from).nodes)
      if (unit(from).n_row_dims < 0 && op_class(graph_.node(m).op) == OpClass::kElementwise &&
          is_full(graph_.node(m).first_result, unit(from)) &&
          is_wanted_elsewhere(graph_.node(m).first_result, other))
        return false;
  Unit joined = y, joined_x = x;
  joined.n_row_dims = joined_x.n_row_dims = space.n_row_dims;
  joined.n_group_dims = joined_x.n_group_dims = space.n_group_dims;
  joined_x.nodes.insert(joined_x.nodes.end(), y.nodes.begin(), y.nodes.end());
  if (!groups_fit(joined_x, NodeId())) return false;
  joined_x.nodes = x.nodes;
  const bool fits = columns_fit(joined), fits_x = columns_fit(joined_x);
  if ((!fits && y.n_row_dims != joined.n_row_dims) ||
      (!fits_x && x.n_row_dims != joined.n_row_dims) ||
      ((!fits || !fits_x) && !are_ready_together(a, into)))
    return false;
  // Units must be able to read each other's values from registers.
  for (const auto& [from, other] : {std::pair{a, into}, std::pair{into, a}})
    for (NodeId m : unit(from).nodes) {
      const Node& node = graph_.node(m);
      const bool full = op_class(node.op) == OpClass::kReduce || is_full(node.first_result, joined);
      for (ValueId v : node.operands)
        if (use(use(v).root).unit == other && !readable(v, joined, other, full)) return false;
    }
  // There must be no path between them through a third unit.
  for (const auto& [from, to] : {std::pair{a, into}, std::pair{into, a}}) {
    std::vector<int> stack;
    for (int o : unit(from).operand_units)
      if (o != to) stack.push_back(o);
    if (reaches(std::move(stack), to)) return false;
  }
  return true;
}

bool Fuser::may_permute_axes(int u, const SumSpace& space) {
  const Unit& g = unit(u);
  if (g.n_row_dims >= 0 || !g.axes.empty()) return false;
  return std::all_of(g.nodes.begin(), g.nodes.end(), [&](NodeId m) {
    const ValueReaders& readers = value_readers_[graph_.node(m).first_result.index()];
    return op_class(graph_.node(m).op) == OpClass::kElementwise && !readers.in_memory &&
           !readers.in_memory_downstream &&
           std::all_of(readers.sums.begin(), readers.sums.end(),
                       [&](const SumReader& sum) { return sum.space == space; });
  });
}

bool Fuser::is_wanted_elsewhere(ValueId v, int u) {
  const ValueReaders& readers = value_readers_[v.index()];
  if (readers.in_memory || readers.in_memory_downstream || readers.sums.empty()) return false;
  for (ValueId o : graph_.def(v).operands)
    if (use(use(o).root).unit == u && is_full(use(o).root, unit(u))) return false;
  const int depth = std::max(depth_of_unit(u), depths_[v.index()]);
  return std::none_of(readers.sums.begin(), readers.sums.end(), [&](const SumReader& sum) {
    SumSpace both = space_of_unit(unit(u));
    return sum.depth <= depth && (unite(both, sum.space) || may_permute_axes(u, sum.space));
  });
}

int Fuser::depth_of_unit(int u) const {
  int depth = 0;
  for (NodeId m : unit(u).nodes) {
    const Node& node = graph_.node(m);
    for (ValueId o : node.operands) depth = std::max(depth, depths_[o.index()]);
    const ValueReaders& readers = value_readers_[node.first_result.index()];
    if (readers.in_memory || readers.in_memory_downstream || readers.sums.empty()) continue;
    int first = readers.sums[0].depth;
    for (const SumReader& sum : readers.sums) first = std::min(first, sum.depth);
    depth = std::max(depth, first);
  }
  return depth;
}

bool Fuser::reads_nothing_large(int u) {
  for (NodeId m : unit(u).nodes)
    for (ValueId v : graph_.node(m).operands)
      if (!use(v).splat && use(use(v).root).unit != u &&
          graph_.type(use(v).root).shape.elems() >= Shape(unit(u).dims).elems())
        return false;
  return true;
}

bool Fuser::reads_long_row_value(ValueId v, const Unit& g, int u) {
  if (use(use(v).root).unit != u || g.n_row_dims != 0) return false;
  return Shape(g.dims).elems() > kMaxWholeRow && is_row_value(g, graph_.type(use(v).root).shape);
}

bool Fuser::columns_fit(const Unit& joined) const {
  for (NodeId m : joined.nodes)
    if (!is_full(graph_.node(m).first_result, joined) &&
        op_class(graph_.node(m).op) != OpClass::kReduce)
      return false;
  return true;
}

bool Fuser::groups_fit(const Unit& joined, NodeId more) const {
  constexpr int64_t kEnough = 512;
  if (joined.n_group_dims <= 0) return true;
  int64_t points = 1;
  for (size_t i = static_cast<size_t>(joined.n_group_dims); i < joined.dims.size(); ++i)
    points *= joined.dims[i];
  if (points >= kEnough) return true;
  const auto has_rows = [&](NodeId m) {
    const ValueId v = graph_.node(m).first_result;
    return !is_column_result(v) && !is_full(v, joined);
  };
  return std::none_of(joined.nodes.begin(), joined.nodes.end(), has_rows) &&
         (!more.valid() || !has_rows(more));
}

bool Fuser::reads_few(const Unit& few, NodeId more) const {
  if (few.nodes.size() >= kMaxMembersOfFew) return false;
  std::set<NodeId> members(few.nodes.begin(), few.nodes.end());
  members.insert(more);
  std::set<ValueId> arrays;
  for (NodeId m : members)
    for (ValueId v : graph_.node(m).operands)
      if (graph_.type(v).shape.rank() > 0 && !members.contains(graph_.value(v).node))
        arrays.insert(v);
  return arrays.size() <= kFewArrays;
}

bool Fuser::readable(ValueId v, const Unit& g, int u, bool full) {
  if (use(v).splat) return true;
  const ValueId canon = use(v).canon;
  if (use(use(v).root).unit != u) return true;
  if (is_column_result(use(v).root)) return false;
  const Shape& root_shape = graph_.type(use(v).root).shape;
  if (canon == use(v).root) {
    const bool root_full = root_shape.dims() == full_dims(g);
    return full ? root_full : is_row_value(g, root_shape);
  }
  // Through view ops, only a row value is readable, along the row dimensions.
  return is_row_value(g, root_shape) && is_row_window(canon, g);
}

bool Fuser::is_column_result(ValueId v) const {
  if (graph_.is_input(v)) return false;
  const Node& node = graph_.def(v);
  if (op_class(node.op) != OpClass::kReduce) return false;
  const auto& axes = node.as<AxesParams>().axes;
  const int last = graph_.type(node.operands[0]).shape.rank() - 1;
  return std::find(axes.begin(), axes.end(), last) == axes.end() && last >= 0;
}

bool Fuser::is_row_window(ValueId v, const Unit& g) const {
  const View& w = result_.windows[v.index()];
  const Shape& shape = graph_.type(v).shape;
  const bool full = shape.dims() == g.dims;
  if (!full && !is_row_value(g, shape)) return false;
  if (w.offset_bytes != 0) return false;
  int64_t stride = 1;
  for (size_t i = static_cast<size_t>(g.n_row_dims); i-- > 0;) {
    if (g.dims[i] != 1 && w.strides[i] != stride) return false;
    stride *= g.dims[i];
  }
  for (size_t i = static_cast<size_t>(g.n_row_dims); i < w.dims.size(); ++i)
    if (w.dims[i] != 1 && w.strides[i] != 0) return false;
  return true;
}

bool Fuser::reaches_outside(const Node& node, int u) {
  std::vector<int> stack;
  for (ValueId v : node.operands) {
    const int o = use(use(v).root).unit;
    if (o >= 0 && o != u) stack.push_back(o);
  }
  return reaches(std::move(stack), u);
}

bool Fuser::reaches(std::vector<int> stack, int target) {
  ++stamp_;
  seen_.resize(result_.units.size(), 0);
  while (!stack.empty()) {
    const int u = stack.back();
    stack.pop_back();
    if (u == target) return true;
    const size_t i = static_cast<size_t>(u);
    if (seen_[i] == stamp_ || reached_[i] < first_node_[static_cast<size_t>(target)]) continue;
    seen_[i] = stamp_;
    for (int o : result_.units[i].operand_units) stack.push_back(o);
  }
  return false;
}

bool Fuser::are_ready_together(int a, int into) {
  const auto is_large = [&](ValueId v) {
    return graph_.type(use(v).root).shape.elems() >= Shape(unit(a).dims).elems();
  };
  const auto n_reads = [&](int u, ValueId v) {
    int n = 0;
    for (NodeId m : unit(u).nodes)
      for (ValueId o : graph_.node(m).operands) n += use(o).canon == use(v).canon ? 1 : 0;
    return n;
  };
  for (NodeId m : unit(a).nodes) {
    const Node& node = graph_.node(m);
    const ValueId v = node.first_result;
    if (is_large(v) && n_reads(a, v) + n_reads(into, v) != n_uses(v)) return false;
    for (ValueId o : node.operands)
      if (is_large(o) && !use(o).splat && use(use(o).root).unit != a && n_reads(into, o) == 0)
        return false;
  }
  const auto waits_for = [&](int late, int early) {
    std::vector<int> others = unit(late).operand_units;
    std::erase(others, early);
    return std::all_of(unit(early).operand_units.begin(), unit(early).operand_units.end(),
                       [&](int o) { return o == late || is_ready_with(o, others, into); });
  };
  return waits_for(into, a) && (reads_nothing_large(a) || waits_for(a, into));
}

bool Fuser::is_ready_with(int o, const std::vector<int>& others, int space) {
  if (reaches(others, o)) return true;
  const Unit& u = unit(o);
  return u.kind == UnitKind::kRows && Shape(u.dims).elems() < Shape(unit(space).dims).elems() &&
         std::all_of(u.operand_units.begin(), u.operand_units.end(),
                     [&](int below) { return is_ready_with(below, others, space); });
}

void Fuser::count_heavy() {
  for (size_t n = 0; n < graph_.n_nodes(); ++n) {
    const Node& node = graph_.nodes()[n];
    const OpClass cls = op_class(node.op);
    // A collective goes with the product whose operand or result it moves, so work over a mesh is
    // as near as on one device.
    const bool heavy =
        (cls == OpClass::kOther || cls == OpClass::kStructure) && !is_collective(node.op);
    heavy_before_.push_back((heavy_before_.empty() ? 0 : heavy_before_.back()) + heavy);
    size_t last = 0;
    for (ValueId v : node.operands)
      if (!graph_.is_input(v)) last = std::max(last, last_heavy_[graph_.value(v).node.index()]);
    waits_for_.push_back(last);
    last_heavy_.push_back(heavy ? n : last);
  }
  is_held_.resize(graph_.n_nodes());
  for (size_t n = graph_.n_nodes(); n-- > 0;)
    for (ValueId v : graph_.nodes()[n].operands) {
      if (graph_.is_input(v)) continue;
      const size_t maker = graph_.value(v).node.index();
      const bool is_one_step = last_heavy_[n] == waits_for_[n];
      if (waits_for_[n] > last_heavy_[maker] || (is_one_step && is_held_[n]))
        is_held_[maker] = true;
    }
}

bool Fuser::is_far(NodeId a, NodeId b) const {
  const auto [first, second] = std::minmax(a, b);
  return graph_.node(second).backward && !graph_.node(first).backward &&
         heavy_between(first, second) > kNearHeavyNodes;
}

bool Fuser::is_far_from_clones(int u, NodeId id, int other) {
  const Node& node = graph_.node(id);
  // A value per row takes almost no memory while it waits.
  if (!node.backward || graph_.type(node.first_result).shape.dims() != unit(u).dims) return false;
  const auto is_own = [&](int unit) { return unit == u || unit == other; };
  size_t waits_for = 0;
  for (ValueId v : node.operands)
    if (const int o = use(use(v).root).unit; o >= 0 && !is_own(o))
      waits_for = std::max(waits_for, reached_[static_cast<size_t>(o)]);
  const bool is_clone = pass_of(node.provenance) == Pass::kResiduals;
  const int near = is_clone ? 0 : kNearRecomputed;
  const std::vector<NodeId>& nodes = unit(u).nodes;
  const bool far = std::any_of(nodes.begin(), nodes.end(), [&](NodeId m) {
    return m < id && graph_.node(m).backward && waits_for < m.index() &&
           pass_of(graph_.node(m).provenance) == Pass::kResiduals && heavy_between(m, id) > near;
  });
  if (!far) return false;
  if (is_clone) return true;
  for (ValueId v : node.operands) {
    if (use(v).splat) continue;
    if (!is_own(use(use(v).root).unit)) return true;
    for (NodeId reader : readers_of_root_[use(v).root.index()]) {
      const Node& other_reader = graph_.node(reader);
      // A reader that waits for a later kernel keeps the operand live until then.
      const bool may_join = op_class(other_reader.op) == OpClass::kElementwise &&
                            waits_for_[reader.index()] <= last_heavy_[id.index()];
      if (reader < id ? !is_own(use(other_reader.first_result).unit) : !may_join) return true;
    }
  }
  return false;
}

bool Fuser::would_wait_beside(int u, NodeId id) {
  const Node& node = graph_.node(id);
  const NodeId last = unit(u).nodes.back();
  if (!node.backward || graph_.node(last).backward || heavy_between(last, id) == 0 ||
      !is_held_[id.index()] || graph_.type(node.first_result).shape.dims() != unit(u).dims)
    return false;
  return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId v) {
    const ValueId root = use(v).root;
    if (use(v).splat || use(root).unit != u || graph_.type(root).shape.dims() != unit(u).dims)
      return false;
    const std::vector<NodeId>& readers = readers_of_root_[root.index()];
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return waits_for_[reader.index()] > last_heavy_[id.index()];
    });
  });
}

int Fuser::heavy_between(NodeId first, NodeId second) const {
  return heavy_before_[second.index()] - heavy_before_[first.index()];
}

}  // namespace stow::fusion
