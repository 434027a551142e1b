#include "stowage/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <set>

#include "stowage/ir/utilities.h"
#include "stowage/passes/sum_spaces.h"
#include "stowage/passes/view.h"

namespace stow {

ValueId handed_through(const Graph& graph, ValueId v) {
  while (!graph.is_input(v)) {
    const Node& node = graph.def(v);
    auto i = static_cast<size_t>(graph.value(v).index);
    if (node.op == OpKind::kScan) {
      const auto& p = node.as<ScanParams>();
      if (i >= static_cast<size_t>(p.n_carries)) break;
      const Graph& body = *node.graphs[0];
      const size_t operand = static_cast<size_t>(p.n_consts) + i;
      if (handed_through(body, body.outputs()[i]) != body.inputs()[operand]) break;
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

Unit unit_that_makes(const Graph& graph, const Unit& unit, size_t i) {
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

bool is_before_rows(const Unit& unit, NodeId node) {
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
  // Elements of the root are their own positions where no other axis has an extent.
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
  if (dims.size() < n || !std::equal(dims.begin(), dims.begin() + unit.n_row_dims, unit.dims.begin()))
    return false;
  if (dims.size() == n) return true;
  return dims.size() == unit.dims.size() &&
         std::all_of(dims.begin() + unit.n_row_dims, dims.end(), [](int64_t d) { return d == 1; }) &&
         dims != unit.dims;
}

namespace {

// Members of one program that reads any number of arrays, which are then there at once.
constexpr size_t kMaxMembers = 96;
// The same of one that reads few: room for an update with moments in 8 bits, about a hundred.
constexpr size_t kMaxMembersOfFew = 128, kFewArrays = 16;
// Elements of a row that stay in a near cache between two passes over it.
constexpr int64_t kMaxWholeRow = int64_t{1} << 14;
// Ops with kernels of their own that may lie between forward and backward work that is fused: what
// a loss has between the two.
constexpr int kNearHeavyNodes = 3;
// The same between recomputed values and backward work beside them: one product of a layer.
constexpr int kNearRecomputed = 1;
// Rows of a product whose epilogue needs them whole.
constexpr int64_t kLeastWholeRows = 64;
// Elements of an operand that are made at a time (runtime/cpu/kernels/gemm.h).
constexpr int64_t kPieceOfLeft = 192 * 256, kPieceOfRight = 32 * 256;

class Fuser {
 public:
  Fuser(const Graph& graph, const std::vector<View>& input_views, bool fuse, int64_t least_epilogue,
        int threads)
      : graph_(graph),
        input_views_(input_views),
        fuse_(fuse),
        least_epilogue_(least_epilogue),
        threads_(threads) {}

  Units run() {
    resolve_values();
    if (fuse_) {
      wants_ = find_wants(graph_);
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

 private:
  ValueUse& use(ValueId v) { return result_.uses[v.index()]; }
  const Unit& unit(int u) const { return result_.units[static_cast<size_t>(u)]; }

  // Windows and roots, as if every root were contiguous and inputs lay as told.
  void resolve_values() {
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
      if (node.op == OpKind::kAttention) use(node.result(1)).reshaped = true;  // has no strides
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
          if (handed_through(graph_, node.result(k)) != handed_through(graph_, init)) continue;
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
          if (node.op == OpKind::kReshape) use(from.root).reshaped = true;
        } else {
          copies_[n] = true;
        }
      }
    }
  }

  bool is_made(NodeId id) const {
    const Node& node = graph_.node(id);
    const OpClass cls = op_class(node.op);
    if (cls == OpClass::kIdentity) return false;
    if (cls == OpClass::kView) return copies_[id.index()] && !result_.uses[node.first_result.index()].splat;
    if (node.op == OpKind::kIota) return false;
    if (node.op == OpKind::kConstant) return !node.as<ConstantParams>().is_splat();
    return true;
  }

  void place(NodeId id) {
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

  void add_unit(Unit unit, const Node& node) {
    const int u = static_cast<int>(result_.units.size());
    first_node_.push_back(unit.nodes.front().index());
    reached_.push_back(unit.nodes.back().index());
    readers_.emplace_back();
    result_.units.push_back(std::move(unit));
    for (ValueId v : node.operands) link(u, use(use(v).root).unit);
    for (int i = 0; i < node.n_results; ++i)
      if (ValueUse& made = use(node.result(i)); made.root == node.result(i)) made.unit = u;
  }

  // Unit u reads what unit `operand` makes.
  void link(int u, int operand) {
    if (operand < 0 || operand == u) return;
    add_operand_unit(result_.units[static_cast<size_t>(u)], operand);
    readers_[static_cast<size_t>(operand)].push_back(u);
    raise(u, reached_[static_cast<size_t>(operand)]);
  }
  // Unit u has come to depend on `node`, and with it all that read it.
  void raise(int u, size_t node) {
    std::vector<int> stack = {u};
    while (!stack.empty()) {
      const auto i = static_cast<size_t>(stack.back());
      stack.pop_back();
      if (reached_[i] >= node) continue;
      reached_[i] = node;
      stack.insert(stack.end(), readers_[i].begin(), readers_[i].end());
    }
  }

  static void add_operand_unit(Unit& unit, int operand) {
    if (operand >= 0 && std::find(unit.operand_units.begin(), unit.operand_units.end(), operand) ==
                            unit.operand_units.end())
      unit.operand_units.push_back(operand);
  }

  // The iteration space that a node asks for, standing alone.
  Unit own_unit(NodeId id) {
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
  static void set_space(Unit& unit, const SumSpace& space) {
    const Dims dims = full_dims(unit);
    unit.axes = space.axes;
    for (size_t i = 0; i < unit.axes.size(); ++i)
      unit.dims[i] = dims[static_cast<size_t>(unit.axes[i])];
    unit.n_row_dims = space.n_row_dims;
    unit.n_group_dims = space.n_group_dims;
  }
  static SumSpace space_of_unit(const Unit& unit) {
    return {unit.axes, unit.n_group_dims, unit.n_row_dims};
  }

  void place_rows(NodeId id) {
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
    // The latest first; but what reads nothing large comes to the others rather than they to it.
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

  // True for a value that only reductions of other spaces than a unit's want, or later ones, and which
  // reads nothing large of it: in another unit it need not be stored.
  bool is_wanted_elsewhere(ValueId v, int u) {
    const Wants& wants = wants_[v.index()];
    if (wants.in_memory || wants.elsewhere || wants.sums.empty()) return false;
    for (ValueId o : graph_.def(v).operands)
      if (use(use(o).root).unit == u && is_full(use(o).root, unit(u))) return false;
    const int depth = std::max(depth_of_unit(u), depths_[v.index()]);
    return std::none_of(wants.sums.begin(), wants.sums.end(), [&](const SumReader& sum) {
      SumSpace both = space_of_unit(unit(u));
      return sum.depth <= depth && (unite(both, sum.space) || may_turn(u, sum.space));
    });
  }
  // The depth of the reductions in a unit, or of those that it is for.
  int depth_of_unit(int u) const {
    int depth = 0;
    for (NodeId m : unit(u).nodes) {
      const Node& node = graph_.node(m);
      for (ValueId o : node.operands) depth = std::max(depth, depths_[o.index()]);
      const Wants& wants = wants_[node.first_result.index()];
      if (wants.in_memory || wants.elsewhere || wants.sums.empty()) continue;
      int first = wants.sums[0].depth;
      for (const SumReader& sum : wants.sums) first = std::min(first, sum.depth);
      depth = std::max(depth, first);
    }
    return depth;
  }
  bool is_full(ValueId v, const Unit& g) const {
    return graph_.type(v).shape.dims() == full_dims(g);
  }

  // True if a unit of elementwise work can take up the space of a reduction of it, other than its axes'
  // own order: no value of it need lie in memory.
  bool may_turn(int u, const SumSpace& space) {
    const Unit& g = unit(u);
    if (g.n_row_dims >= 0 || !g.axes.empty()) return false;
    return std::all_of(g.nodes.begin(), g.nodes.end(), [&](NodeId m) {
      const Wants& wants = wants_[graph_.node(m).first_result.index()];
      return op_class(graph_.node(m).op) == OpClass::kElementwise && !wants.in_memory &&
             !wants.elsewhere &&
             std::all_of(wants.sums.begin(), wants.sums.end(),
                         [&](const SumReader& sum) { return sum.space == space; });
    });
  }

  // True for a unit that reads no array of its own size, such as a comparison of rows with columns.
  bool reads_nothing_large(int u) {
    for (NodeId m : unit(u).nodes)
      for (ValueId v : graph_.node(m).operands)
        if (!use(v).splat && use(use(v).root).unit != u &&
            graph_.type(use(v).root).shape.elems() >= Shape(unit(u).dims).elems())
          return false;
    return true;
  }

  int n_uses(ValueId v) const { return n_uses_[v.index()]; }

  // A sum, and a product that is only added to it: one unit, whose product adds to what lies where
  // the sum is. The product is rounded before it is added, so the bits are the same.
  bool accumulate(NodeId id) {
    const Node& node = graph_.node(id);
    // The product of nothing is 0, and -0 + 0 is 0.
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
  bool is_product(ValueId v) const {
    return !graph_.is_input(v) && graph_.def(v).op == OpKind::kDotGeneral;
  }
  // Handed from the graph's inputs to its outputs: a gradient over a loop's iterations.
  bool is_carried(ValueId sum, ValueId result) const {
    return graph_.is_input(sum) && n_uses(result) == 1 && is_output(result);
  }
  // A product, or what a product was added to.
  bool is_sum_of_products(ValueId v) {
    if (graph_.is_input(v) || use(v).unit < 0 || use(v).root != v) return false;
    const Unit& maker = unit(use(v).unit);
    return maker.kind == UnitKind::kOp && is_product(graph_.node(maker.nodes[0]).first_result);
  }
  bool is_output(ValueId v) const {
    return std::find(graph_.outputs().begin(), graph_.outputs().end(), v) != graph_.outputs().end();
  }

  // ---- epilogues ----

  // Row programs that read a product which nothing else reads run piece by piece behind it.
  void add_epilogues() {
    find_readers();
    for (size_t u = 0; u < result_.units.size(); ++u) {
      if (unit(static_cast<int>(u)).kind != UnitKind::kRows) continue;
      const ValueId product = product_before(static_cast<int>(u));
      if (!product.valid()) continue;
      const ValueId host = host_of(static_cast<int>(u), product);
      if (!host.valid()) continue;
      Unit& rows = result_.units[u];
      rows.epilogue_output = host;
      rows.n_row_dims = n_rows_of(graph_.def(product));
      rows.nodes.insert(rows.nodes.begin(), graph_.value(product).node);
      absorb(use(product).unit, static_cast<int>(u));
    }
  }

  // Unit `into`, which has been given the nodes of unit `from` and alone reads what they make, takes its
  // place.
  void absorb(int from, int into) {
    Unit& gone = result_.units[static_cast<size_t>(from)];
    Unit& stays = result_.units[static_cast<size_t>(into)];
    for (NodeId m : gone.nodes) use(graph_.node(m).first_result).unit = into;
    std::erase(stays.operand_units, from);
    for (int o : gone.operand_units) add_operand_unit(stays, o);
    gone.nodes.clear();
    gone.operand_units.clear();
  }

  void find_readers() {
    n_readers_.assign(graph_.n_values(), 0);
    last_reader_.assign(graph_.n_values(), 0);
    for (size_t n = 0; n < graph_.n_nodes(); ++n) {
      if (!is_made(NodeId(n))) continue;
      for (ValueId v : graph_.nodes()[n].operands) {
        const size_t root = use(v).root.index();
        ++n_readers_[root];
        last_reader_[root] = n;
      }
    }
    for (ValueId v : graph_.outputs()) {
      ++n_readers_[use(v).root.index()];
      last_reader_[use(v).root.index()] = graph_.n_nodes();
    }
  }
  // How often the nodes of a unit read what lies in the memory of `root`; -1 where not as it is.
  int n_reads(const Unit& u, ValueId root) {
    int n = 0;
    for (NodeId m : u.nodes)
      for (ValueId v : graph_.node(m).operands) {
        if (use(v).root != root) continue;
        if (use(v).canon != root) return -1;
        ++n;
      }
    return n;
  }

  int n_rows_of(const Node& product) const {
    return graph_.type(product.operands[0]).shape.rank() -
           static_cast<int>(product.as<DotParams>().lhs_contract.size());
  }

  // The product that row unit u may follow piece by piece: all of its space, rows as rows, read
  // nowhere else, and made after whatever else the unit reads.
  ValueId product_before(int u) {
    const Unit& rows = unit(u);
    if (!rows.axes.empty() || rows.nodes.empty()) return ValueId();
    ValueId product;
    for (NodeId m : rows.nodes)
      for (ValueId v : graph_.node(m).operands)
        if (is_product(v) && use(v).unit >= 0 && use(v).unit != u &&
            unit(use(v).unit).nodes.size() == 1 && unit(use(v).unit).kind == UnitKind::kOp &&
            (!product.valid() || graph_.value(product).node < graph_.value(v).node))
          product = v;
    if (!product.valid() || n_reads(rows, product) != n_readers_[product.index()]) return ValueId();
    const Node& node = graph_.def(product);
    const NodeId id = graph_.value(product).node;
    const int n_rows = n_rows_of(node);
    if (graph_.type(product).shape.dims() != rows.dims ||
        Shape(rows.dims).elems() < least_epilogue_ || !are_small_floats(node) ||
        !node.as<DotParams>().lhs_batch.empty() || n_rows < 1 ||
        n_rows >= graph_.type(product).shape.rank() || is_far(id, rows.nodes.front()) ||
        is_far(id, rows.nodes.back()) || common_dims(rows.n_row_dims, n_rows) == -2)
      return ValueId();
    bool whole_rows = false;
    for (NodeId m : rows.nodes) {
      const Node& member = graph_.node(m);
      if (is_column_result(member.first_result)) return ValueId();
      whole_rows = whole_rows || graph_.type(member.first_result).shape.dims() != rows.dims;
    }
    // Threads share such a product by its rows alone.
    int64_t n = 1;
    for (int i = 0; i < n_rows; ++i) n *= rows.dims[static_cast<size_t>(i)];
    if (whole_rows && n < std::min(kLeastWholeRows, least_epilogue_)) return ValueId();
    for (int o : rows.operand_units) {
      if (o == use(product).unit) continue;
      // What is moved here comes as late as it can, when what the product reads may be gone.
      const bool is_move = graph_.node(unit(o).nodes[0]).op == OpKind::kDevicePut;
      if (is_move || reached_[static_cast<size_t>(o)] >= id.index()) return ValueId();
    }
    return product;
  }

  // The result of unit u in whose memory its product may lie at first; none where the two as one
  // would need more memory than one after the other.
  ValueId host_of(int u, ValueId product) {
    const Unit& rows = unit(u);
    const DType dtype = graph_.type(product).dtype;
    const auto is_full = [&](ValueId v) { return graph_.type(v).shape.dims() == rows.dims; };
    ValueId host;
    int n_made = 0, n_freed = 0;
    for (NodeId m : rows.nodes) {
      const ValueId v = graph_.node(m).first_result;
      if (!is_full(v) || n_reads(rows, v) == n_readers_[v.index()]) continue;
      ++n_made;
      if (!host.valid() && graph_.type(v).dtype == dtype) host = v;
    }
    std::vector<ValueId> seen = {product};
    for (NodeId m : rows.nodes)
      for (ValueId v : graph_.node(m).operands) {
        const ValueId root = use(v).root;
        if (use(v).splat || use(root).unit == u || !is_full(root) ||
            std::find(seen.begin(), seen.end(), root) != seen.end())
          continue;
        seen.push_back(root);
        if (n_reads(rows, root) != n_readers_[root.index()]) continue;
        // An argument that is read for the last time is to be written over.
        if (graph_.is_input(root)) return ValueId();
        ++n_freed;
      }
    if (n_made - 1 <= n_freed) return host;
    // What is made beyond the product lies beside the product's operands: do they stay anyway?
    for (ValueId v : graph_.def(product).operands)
      if (const ValueId root = use(v).root; !graph_.is_input(root) && !use(v).splat &&
                                            last_reader_[root.index()] <= rows.nodes.back().index())
        return ValueId();
    return host;
  }

  // ---- prologues ----

  // Row programs whose only result is an operand of a product, and read nowhere else, make it in passing.
  void add_prologues() {
    for (size_t u = 0; u < result_.units.size(); ++u) {
      if (unit(static_cast<int>(u)).nodes.empty() || !has_product(unit(static_cast<int>(u)))) continue;
      for (size_t i = 0; i < 2; ++i) {
        const std::optional<int> rows = rows_that_make(static_cast<int>(u), i);
        if (!rows) continue;
        Unit& reader = result_.units[u];
        const ValueId made = use(graph_.node(reader.nodes[0]).operands[i]).root;
        const std::vector<NodeId>& nodes = unit(use(made).unit).nodes;
        reader.prologues[i] = {made, nodes, *rows};
        reader.nodes.insert(reader.nodes.end(), nodes.begin(), nodes.end());
        absorb(use(made).unit, static_cast<int>(u));
      }
    }
  }
  bool has_product(const Unit& u) const {
    return (u.epilogue_output.valid() || u.kind == UnitKind::kOp) &&
           graph_.node(u.nodes[0]).op == OpKind::kDotGeneral;
  }

  // How many dimensions of operand i of unit u's product are the rows of what makes it, where that may
  // happen in passing.
  std::optional<int> rows_that_make(int u, size_t i) {
    const Unit& reader = unit(u);
    const NodeId id = reader.nodes[0];
    const Node& product = graph_.node(id);
    const ValueId v = product.operands[i], root = use(v).root;
    const int m = use(root).unit;
    if (m < 0 || m == u || use(v).splat || use(v).canon != root || n_readers_[root.index()] != 1)
      return std::nullopt;
    const Unit& maker = unit(m);
    const ArrayType& type = graph_.type(root);
    if (maker.kind != UnitKind::kRows || maker.epilogue_output.valid() || !maker.axes.empty() ||
        maker.dims != type.shape.dims() || type.shape.elems() < least_made(i) ||
        !are_small_floats(product) || !product.as<DotParams>().lhs_batch.empty() ||
        is_far(maker.nodes.back(), id) || is_far(maker.nodes.front(), id))
      return std::nullopt;
    // Elementwise all through, with one result; and not much work, as a panel of B is made by each
    // thread, one of A again for every tile of columns of C.
    for (NodeId n : maker.nodes) {
      const Node& node = graph_.node(n);
      const ValueId w = node.first_result;
      if (!is_little_work(node.op) || graph_.type(w).shape.dims() != maker.dims ||
          (w != root && n_reads(maker, w) != n_readers_[w.index()]))
        return std::nullopt;
    }
    // Axes to sum over are the first or the last.
    const auto& params = product.as<DotParams>();
    const auto& contracted = i == 0 ? params.lhs_contract : params.rhs_contract;
    const auto n = static_cast<int64_t>(contracted.size()), rank = int64_t{type.shape.rank()};
    if (n == 0 || n == rank) return std::nullopt;
    for (int64_t k = 0; k < n; ++k)
      if (contracted[static_cast<size_t>(k)] != contracted[0] + k) return std::nullopt;
    if (contracted[0] != 0 && contracted[0] != rank - n) return std::nullopt;
    if (read_bytes(m, id) > type.bytes()) return std::nullopt;
    return static_cast<int>(contracted[0] == 0 ? n : rank - n);
  }

  // Elements of an operand that is worth it: pieces take memory too.
  int64_t least_made(size_t i) const {
    return least_epilogue_ == 0 ? 0 : std::max(1, threads_) * (i == 0 ? kPieceOfLeft : kPieceOfRight) * 4;
  }

  bool are_small_floats(const Node& product) const {
    for (const ValueId v : {product.operands[0], product.operands[1], product.first_result}) {
      const DType t = graph_.type(v).dtype;
      if (t != DType::kF32 && t != DType::kBF16 && t != DType::kF16) return false;
    }
    return true;
  }

  static bool is_little_work(OpKind op) {
    return op == OpKind::kConvert || op == OpKind::kNeg || op == OpKind::kAdd || op == OpKind::kSub ||
           op == OpKind::kMul || op == OpKind::kMax || op == OpKind::kMin || op == OpKind::kSelect;
  }

  // What a unit reads of arrays that nothing reads after the product, arguments aside: they would live on.
  int64_t read_bytes(int maker, NodeId product) {
    int64_t bytes = 0;
    std::vector<ValueId> seen;
    for (NodeId m : unit(maker).nodes)
      for (ValueId v : graph_.node(m).operands) {
        const ValueId root = use(v).root;
        if (use(v).splat || use(root).lazy_iota || graph_.is_input(root) || use(root).unit == maker ||
            std::find(seen.begin(), seen.end(), root) != seen.end())
          continue;
        seen.push_back(root);
        if (last_reader_[root.index()] <= product.index()) bytes += graph_.type(root).bytes();
      }
    return bytes;
  }

  void count_heavy() {
    for (const Node& node : graph_.nodes()) {
      const OpClass cls = op_class(node.op);
      // A collective goes with the product whose operand or result it moves: over a mesh work is as near
      // as on one device.
      const bool heavy = (cls == OpClass::kOther || cls == OpClass::kStructure) && !is_collective(node.op);
      heavy_before_.push_back((heavy_before_.empty() ? 0 : heavy_before_.back()) + heavy);
    }
  }
  // Backward work beside forward work that was done long before would be done then too, and what
  // it makes wait in memory: a clone would undo its recomputation.
  bool is_far(NodeId a, NodeId b) const {
    const auto [first, second] = std::minmax(a, b);
    return graph_.node(second).backward && !graph_.node(first).backward &&
           heavy_between(first, second) > kNearHeavyNodes;
  }
  // The same of backward work of one layer beside what was recomputed for another: it would be done
  // then, unless it waits for something later. It may be done early where it takes the place of all
  // that it reads; if other work reads an operand too, both would wait.
  bool is_far_from_clones(int u, NodeId id, int other = -1) {
    const Node& node = graph_.node(id);
    // A value a row takes next to nothing while it waits.
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
             pass_of(graph_.node(m).provenance) == Pass::kResiduals &&
             heavy_between(m, id) > near;
    });
    if (!far) return false;
    if (is_clone) return true;
    for (ValueId v : node.operands) {
      if (use(v).splat) continue;
      if (!is_own(use(use(v).root).unit)) return true;
      for (NodeId reader : readers_of_root_[use(v).root.index()]) {
        const Node& other_reader = graph_.node(reader);
        const bool may_join = op_class(other_reader.op) == OpClass::kElementwise;
        if (reader < id ? !is_own(use(other_reader.first_result).unit) : !may_join) return true;
      }
    }
    return false;
  }
  int heavy_between(NodeId first, NodeId second) const {
    return heavy_before_[second.index()] - heavy_before_[first.index()];
  }

  // True unless groups of few points each would be gone through one by one: where rows are reduced as
  // well, or read as such, columns cannot change places with groups.
  bool groups_fit(const Unit& joined, NodeId more) const {
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

  // Whether a unit and one more node are few enough, and read few arrays.
  bool reads_few(const Unit& few, NodeId more) const {
    if (few.nodes.size() >= kMaxMembersOfFew) return false;
    std::set<NodeId> members(few.nodes.begin(), few.nodes.end());
    members.insert(more);
    std::set<ValueId> arrays;
    for (NodeId m : members)
      for (ValueId v : graph_.node(m).operands)
        if (graph_.type(v).shape.rank() > 0 && !members.contains(graph_.value(v).node)) arrays.insert(v);
    return arrays.size() <= kFewArrays;
  }

  bool may_join(NodeId id, const Unit& own, int u) {
    const Unit& g = unit(u);
    if ((g.nodes.size() >= kMaxMembers && !reads_few(g, id)) || is_far(g.nodes.back(), id) || is_far_from_clones(u, id))
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
        if (!may_turn(u, space_of_unit(own))) return false;
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

  // True for a value of a row that is the whole of a large array, such as a norm of weights. What
  // reads it passes over the row once more anyway; in the same unit it would bring together all
  // that is computed from the norm, of one array and of the others.
  bool reads_long_row_value(ValueId v, const Unit& g, int u) {
    if (use(use(v).root).unit != u || g.n_row_dims != 0) return false;
    return Shape(g.dims).elems() > kMaxWholeRow && is_row_value(g, graph_.type(use(v).root).shape);
  }

  // Fixing the rows must not turn a member's value into an ambiguous one.
  bool columns_fit(const Unit& joined) const {
    for (NodeId m : joined.nodes)
      if (!is_full(graph_.node(m).first_result, joined) &&
          op_class(graph_.node(m).op) != OpClass::kReduce)
        return false;
    return true;
  }

  // A member may read: a splat, an iota of the iteration space, anything outside, a member's value
  // as it is, or a member's row value through broadcasts and reshapes.
  bool readable(ValueId v, const Unit& g, int u, bool full) {
    if (use(v).splat) return true;
    const ValueId canon = use(v).canon;
    if (use(use(v).root).unit != u) return true;
    if (is_column_result(use(v).root)) return false;
    const Shape& root_shape = graph_.type(use(v).root).shape;
    if (canon == use(v).root) {
      const bool root_full = root_shape.dims() == full_dims(g);
      return full ? root_full : is_row_value(g, root_shape);
    }
    // Through view ops: only from a row value, along the row dimensions.
    return is_row_value(g, root_shape) && is_row_window(canon, g);
  }

  bool is_column_result(ValueId v) const {
    if (graph_.is_input(v)) return false;
    const Node& node = graph_.def(v);
    if (op_class(node.op) != OpClass::kReduce) return false;
    const auto& axes = node.as<AxesParams>().axes;
    const int last = graph_.type(node.operands[0]).shape.rank() - 1;
    return std::find(axes.begin(), axes.end(), last) == axes.end() && last >= 0;
  }

  // True when element (row, column) of v is the root's element of that row.
  bool is_row_window(ValueId v, const Unit& g) const {
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

  // True when something the node reads, outside unit u, needs u first.
  bool reaches_outside(const Node& node, int u) {
    std::vector<int> stack;
    for (ValueId v : node.operands) {
      const int o = use(use(v).root).unit;
      if (o >= 0 && o != u) stack.push_back(o);
    }
    return reaches(std::move(stack), u);
  }
  bool reaches(std::vector<int> stack, int target) {
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

  void join(NodeId id, const Unit& own, int u) {
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

  bool may_merge(int a, int into) {
    const Unit &x = unit(a), &y = unit(into);
    SumSpace space = space_of_unit(x);
    if (x.dims != y.dims || !unite(space, space_of_unit(y)) ||
        x.nodes.size() + y.nodes.size() > kMaxMembers || is_far(x.nodes.back(), y.nodes.back()) ||
        is_far_from_clones(a, y.nodes.back(), into) || is_far_from_clones(into, x.nodes.back(), a))
      return false;
    // A value would have to be stored that only reductions of other spaces, still to come, read.
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
        ((!fits || !fits_x) && !are_one_in_time(a, into)))
      return false;
    // Members must read each other as they are.
    for (const auto& [from, other] : {std::pair{a, into}, std::pair{into, a}})
      for (NodeId m : unit(from).nodes) {
        const Node& node = graph_.node(m);
        const bool full =
            op_class(node.op) == OpClass::kReduce || is_full(node.first_result, joined);
        for (ValueId v : node.operands)
          if (use(use(v).root).unit == other && !readable(v, joined, other, full)) return false;
      }
    // No path between them through a third unit.
    for (const auto& [from, to] : {std::pair{a, into}, std::pair{into, a}}) {
      std::vector<int> stack;
      for (int o : unit(from).operand_units)
        if (o != to) stack.push_back(o);
      if (reaches(std::move(stack), to)) return false;
    }
    return true;
  }

  // True when unit a makes nothing large for a third and reads nothing large that `into` does not,
  // and neither of them, but for what `into` reads of a, can begin before the other: to run them as
  // one makes nothing wait in memory. Where a reads nothing large at all it may wait itself.
  bool are_one_in_time(int a, int into) {
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
  // Whether one of `others` waits for unit o as well, or o is little work on what they wait for.
  bool is_ready_with(int o, const std::vector<int>& others, int space) {
    if (reaches(others, o)) return true;
    const Unit& u = unit(o);
    return u.kind == UnitKind::kRows && Shape(u.dims).elems() < Shape(unit(space).dims).elems() &&
           std::all_of(u.operand_units.begin(), u.operand_units.end(),
                       [&](int below) { return is_ready_with(below, others, space); });
  }

  void merge(int a, int into) {
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

  // Drops units that were merged away.
  void compact() {
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

  // Constants and iotas that a kernel other than a row program reads must be made.
  void fill_leaves() {
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

  // Whether node m of a unit reads v as a step of its program.
  bool is_step_of(int u, NodeId m, ValueId v) {
    const Unit& reader = unit(u);
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<NodeId>& nodes = reader.prologues[i].nodes;
      if (std::find(nodes.begin(), nodes.end(), m) != nodes.end())
        return use(v).splat || iota_dim(graph_, result_, unit_that_makes(graph_, reader, i), v) >= 0;
    }
    return reader.kind == UnitKind::kRows && !is_before_rows(reader, m) &&
           (use(v).splat || iota_dim(graph_, result_, reader, v) >= 0);
  }

  void fill(ValueId v, int reader) {
    // A splat through views is filled where the view begins: all its elements are alike.
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
    // What is filled has the strides of its own elements, not those of a broadcast.
    if (use(v).splat) result_.windows[v.index()] = contiguous_view(BufferId(), graph_.type(v));
    if (reader >= 0) add_operand_unit(result_.units[static_cast<size_t>(reader)], use(root).unit);
  }

  void mark_needed() {
    for (size_t u = 0; u < result_.units.size(); ++u)
      for (NodeId m : result_.units[u].nodes)
        for (ValueId v : graph_.node(m).operands) {
          const ValueId root = effective_root(v);
          if (use(root).unit != static_cast<int>(u)) use(root).needed = true;
        }
    for (ValueId v : graph_.outputs()) use(effective_root(v)).needed = true;
  }
  ValueId effective_root(ValueId v) {
    if (use(v).splat && use(use(v).canon).unit >= 0) return use(v).canon;
    return use(v).root;
  }

  const Graph& graph_;
  const std::vector<View>& input_views_;
  bool fuse_;
  int64_t least_epilogue_;
  int threads_;
  Units result_;
  std::vector<Wants> wants_;                 // of values
  std::vector<int> depths_;                  // likewise
  std::vector<bool> copies_;
  std::vector<size_t> first_node_;           // of each unit
  std::vector<size_t> reached_;              // the last node of it and of all that it depends on
  std::vector<std::vector<int>> readers_;    // units that read it
  std::vector<int> n_uses_;                  // of values, by nodes and as outputs
  std::vector<std::vector<NodeId>> readers_of_root_;  // those that are made
  std::vector<int> n_readers_;               // of roots, by nodes and as outputs
  std::vector<size_t> last_reader_;
  std::vector<int> heavy_before_;            // nodes up to each that have kernels of their own
  std::vector<int> seen_;
  int stamp_ = 0;
};

}  // namespace

Units fuse(const Graph& graph, const std::vector<View>& input_views, bool fuse,
           int64_t least_epilogue, int threads) {
  return Fuser(graph, input_views, fuse, least_epilogue, threads).run();
}

}  // namespace stow
