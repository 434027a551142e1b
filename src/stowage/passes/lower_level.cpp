// Chooses the memory of a graph's values, and the values that may share memory.
#include "stowage/passes/lower_level.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "stowage/base/error.h"
#include "stowage/passes/rows.h"

namespace stow {

class UnitCache {
 public:
  // Returns the units for these windows of the inputs; calls `make` if they are not cached.
  template <typename Make>
  const Units& of(const Graph& graph, const std::vector<View>& input_views, const Make& make) {
    std::deque<std::pair<std::vector<View>, Units>>& all = by_graph_[&graph];
    for (const auto& [views, units] : all)
      if (views == input_views) return units;
    return all.emplace_back(input_views, make()).second;
  }

 private:
  std::map<const Graph*, std::deque<std::pair<std::vector<View>, Units>>> by_graph_;
};

std::shared_ptr<UnitCache> make_unit_cache() { return std::make_shared<UnitCache>(); }

namespace lowering {
namespace {

Units units_of(const Graph& graph, const std::vector<View>& input_views,
               const LowerOptions& options) {
  const auto find = [&] {
    return fuse(graph, input_views, options.fuse, options.least_epilogue, options.target.threads);
  };
  return options.unit_cache ? options.unit_cache->of(graph, input_views, find) : find();
}

}  // namespace

Level::Level(Context& context, const Graph& graph, std::vector<View> input_views,
             std::vector<bool> input_reusable)
    : context_(context),
      graph_(graph),
      input_views_(std::move(input_views)),
      input_reusable_(std::move(input_reusable)),
      units_(units_of(graph, input_views_, context.options)) {
  destinations_.resize(graph.n_values());
  storage_.resize(graph.n_values());
  reusable_.resize(graph.n_values());
  next_occupant_.resize(graph.n_values());
  is_moved_.resize(graph.n_values());
  for (const Node& node : graph.nodes())
    if (node.op == OpKind::kDevicePut) is_moved_[use(node.operands[0]).root.index()] = true;
  set_inputs(input_views_);
  order();
}

int Level::last_use_with_parts(ValueId root) const {
  int last = last_use(root);
  if (use(root).unit >= 0 && unit(use(root).unit).kind == UnitKind::kConcat)
    for (ValueId part : graph_.def(root).operands)
      last = std::max(last, last_use_with_parts(made_root(part)));
  return last;
}

int Level::definition(ValueId root) const {
  const int unit = use(root).unit;
  return unit < 0 ? -1 : position(unit);
}

int Level::first_write(ValueId root) const {
  int first = definition(root);
  if (first < 0 || unit(use(root).unit).kind != UnitKind::kConcat) return first;
  for (ValueId part : graph_.def(root).operands)
    if (const int d = definition(made_root(part)); d >= 0) first = std::min(first, d);
  return first;
}

void Level::set_destination(ValueId root, View view, int begin_group,
                            std::optional<ValueId> before) {
  destinations_[root.index()] = Destination{std::move(view), begin_group, before};
  // Consumers are planned before producers, so the last request for a place is written first.
  if (context_.options.reuse && before && before->valid()) next_occupant_[before->index()] = root;
}

bool Level::is_whole(ValueId v) const {
  const ValueId root = made_root(v);
  v = use(v).canon;
  while (v != root && !graph_.is_input(v) && graph_.def(v).op == OpKind::kReshape)
    v = use(graph_.def(v).operands[0]).canon;
  return v == root;
}

void Level::request_output(ValueId out, const View& view, std::optional<ValueId> before) {
  const ValueId root = made_root(out);
  if (!is_whole(out) || graph_.is_input(root) || has_destination(root) || use(root).unit < 0 ||
      storage_[root.index()])
    return;
  const std::optional<View> at = use(out).canon == root ? view : root_view(out, view);
  if (at && (is_contiguous(*at) || (!use(root).needs_contiguous &&
                                    unit(use(root).unit).kind != UnitKind::kCopy)))
    set_destination(root, *at, kOwnLife, before);
}

void Level::set_inputs(const std::vector<View>& views) {
  input_views_ = views;
  for (size_t i = 0; i < views.size(); ++i) {
    storage_[graph_.inputs()[i].index()] = views[i];
    reusable_[graph_.inputs()[i].index()] = input_reusable_[i];
  }
}

void Level::plan() {
  for (const Unit& unit : units_.units) {
    const Node& node = graph_.node(unit.nodes[0]);
    if (unit.kind == UnitKind::kScan) mark_whole_operands(node);
    if (unit.kind == UnitKind::kCond || unit.kind == UnitKind::kWhile)
      for (ValueId v : node.operands) units_.uses[use(v).root.index()].needs_contiguous = true;
  }
  for (size_t i = order_.size(); i-- > 0;) {
    const int u = order_[i];
    if (unit(u).kind == UnitKind::kScan) plan_scan(u);
    if (unit(u).kind == UnitKind::kConcat) plan_concat(u);
  }
}

void Level::emit(std::vector<Instruction>& out) {
  out_ = &out;
  for (int u : order_) emit_unit(u);
}

View Level::access(ValueId v) const {
  if (storage_[v.index()]) return *storage_[v.index()];
  STOW_CHECK(!graph_.is_input(v), "input without storage");
  const Node& node = graph_.def(v);
  const size_t i = static_cast<size_t>(graph_.value(v).index);
  if (op_class(node.op) == OpClass::kIdentity) return access(node.operands[i]);
  if (node.op == OpKind::kScan && use(v).canon != v)  // a carry that is handed through
    return access(node.operands[static_cast<size_t>(node.as<ScanParams>().n_consts) + i]);
  STOW_CHECK(op_class(node.op) == OpClass::kView, "%{} of {} is read before it is made", v.value,
             op_name(node.op));
  const View in = access(node.operands[0]);
  std::optional<View> view = apply_view_op(graph_, node, in);
  STOW_CHECK(view, "a reshape met strides that it was not told of");
  return *view;
}

void Level::copy_to(ValueId v, const View& to, const ProvenancePtr& provenance) {
  const View from = access(v);
  if (same_window(from, to)) return;
  emit_copy(from, to, !shares_slot_with_input(to), provenance);
}

void Level::emit_copy(const View& from, const View& to, bool begins,
                      const ProvenancePtr& provenance) {
  Kernel kernel;
  const MemoryKind kind = kind_of(to);
  if (kind_of(from) == MemoryKind::kDevice && kind == MemoryKind::kDevice) {
    kernel.kind = KernelKind::kRows;
    kernel.op = OpKind::kConvert;
    kernel.program = std::make_shared<const RowProgram>(copy_program(from, to));
  } else {
    kernel.op = OpKind::kDevicePut;
    kernel.params = DevicePutParams{kind};
  }
  kernel.inputs = {from};
  kernel.outputs = {to};
  kernel.outputs[0].begins_lifetime = begins;
  kernel.provenance = made_by(Pass::kLower, provenance);
  push(std::move(kernel));
}

MemoryKind Level::kind_of(const View& view) const {
  return context_.schedule.buffers[view.buffer.index()].kind;
}

bool Level::can_share(int u, ValueId v, ValueId root) const {
  const Unit& un = unit(u);
  if (un.kind == UnitKind::kScan) return scan_can_share(u, v, root);
  const ArrayType &tv = graph_.type(v), &tr = graph_.type(root);
  if (tv.shape != tr.shape || tv.kind != tr.kind || dtype_bytes(tv.dtype) != dtype_bytes(tr.dtype))
    return false;
  const Node& def = graph_.def(v);
  if (adds_to_sum(un)) return root == sum_of(un);
  if (un.kind == UnitKind::kOp && def.op == OpKind::kSort) return sort_can_share(def, v, root);
  if (un.kind == UnitKind::kOp) {
    if (def.op != OpKind::kDynamicUpdateSlice && def.op != OpKind::kScatter &&
        def.op != OpKind::kScatterAdd && def.op != OpKind::kScatterMul &&
        def.op != OpKind::kScatterMin && def.op != OpKind::kScatterMax)
      return false;
    for (size_t i = 0; i < def.operands.size(); ++i)
      if (use(def.operands[i]).root == root && (i > 0 || use(def.operands[i]).canon != root))
        return false;
    return use(def.operands[0]).root == root;
  }
  if (un.kind == UnitKind::kCond) return cond_can_share(u, v, root);
  if (un.kind == UnitKind::kWhile) return while_can_share(def, v, root);
  if (un.kind != UnitKind::kRows || !un.axes.empty() || tv.shape.dims() != un.dims) return false;
  // The product's operands live until its last piece, while earlier pieces are already written.
  if (un.epilogue_output == v) return false;
  bool read = false;
  for (NodeId m : un.nodes)
    for (ValueId o : graph_.node(m).operands) {
      if (use(o).root != root) continue;
      if (use(o).canon != root || is_product_or_prologue(un, m)) return false;
      read = true;
    }
  return read;
}

bool Level::sort_can_share(const Node& sort, ValueId v, ValueId root) const {
  // The kernel holds a lane in the place of its keys, of 4 or 8 bytes, until it writes the lane
  // back.
  const auto k = static_cast<size_t>(graph_.value(v).index);
  const int64_t key_bytes = dtype_bytes(graph_.type(sort.operands[0]).dtype) == 8 ? 8 : 4;
  if (k == 0 || dtype_bytes(graph_.type(v).dtype) > key_bytes ||
      use(sort.operands[k]).canon != root)
    return false;
  for (size_t i = 0; i < sort.operands.size(); ++i)
    if (i != k && use(sort.operands[i]).root == root) return false;
  return true;
}

ValueId Level::sum_of(const Unit& un) const {
  const Node& add = graph_.node(un.nodes[1]);
  return add.operands[add.operands[0] == graph_.node(un.nodes[0]).first_result ? 1 : 0];
}

std::vector<int64_t> Level::value_bytes() const {
  std::vector<int64_t> bytes(graph_.n_values(), 0);
  for (size_t v = 0; v < bytes.size(); ++v) {
    const ValueId id(v);
    if (graph_.is_input(id) ? input_reusable_[static_cast<size_t>(graph_.value(id).index)]
                            : use(id).needs_memory)
      bytes[v] = graph_.type(id).kind == MemoryKind::kDevice ? graph_.type(id).bytes() : 0;
  }
  return bytes;
}

void Level::order() {
  order_ = order_units(graph_, units_, value_bytes(), scratch_bytes(), context_.options.order,
                       context_.schedule.limits, context_.options.limits.order_windows);
  position_.resize(units_.units.size());
  for (size_t i = 0; i < order_.size(); ++i)
    position_[static_cast<size_t>(order_[i])] = static_cast<int>(i);
  last_use_.assign(graph_.n_values(), -1);
  for (size_t u = 0; u < units_.units.size(); ++u)
    for (NodeId m : units_.units[u].nodes)
      for (ValueId v : graph_.node(m).operands) {
        int& last = last_use_[made_root(v).index()];
        last = std::max(last, position_[u]);
      }
  for (ValueId v : graph_.outputs()) last_use_[made_root(v).index()] = kForever;
  find_sliced_only();
}

int64_t Level::inner_bytes(const Graph& graph) const {
  if (const auto known = context_.inner_bytes.find(&graph); known != context_.inner_bytes.end())
    return known->second;
  std::vector<View> views;
  for (ValueId v : graph.inputs()) views.push_back(contiguous_view(BufferId(), graph.type(v)));
  const std::vector<bool> stay(views.size(), false);
  const Level level(context_, graph, std::move(views), stay);
  const int64_t bytes =
      peak_bytes(graph, level.units_, level.value_bytes(), level.scratch_bytes(), level.order_);
  context_.inner_bytes.emplace(&graph, bytes);
  return bytes;
}

std::vector<int64_t> Level::scratch_bytes() const {
  std::vector<int64_t> bytes(units_.units.size(), 0);
  const KernelTarget& target = context_.options.target;
  for (size_t u = 0; u < bytes.size(); ++u) {
    const Node& node = graph_.node(units_.units[u].nodes[0]);
    for (const auto& nested : node.graphs) bytes[u] = std::max(bytes[u], inner_bytes(*nested));
    const bool is_product = units_.units[u].epilogue_output.valid();
    if ((units_.units[u].kind != UnitKind::kOp && !is_product) || !target.scratch_bytes) continue;
    Kernel kernel;
    kernel.op = node.op;
    kernel.params = node.params;
    for (ValueId v : node.operands) kernel.inputs.push_back(units_.windows[v.index()]);
    for (int i = 0; i < node.n_results; ++i)
      kernel.outputs.push_back(contiguous_view(BufferId(), graph_.type(node.result(i))));
    bytes[u] = target.scratch_bytes(kernel);
  }
  return bytes;
}

void Level::find_sliced_only() {
  sliced_only_.assign(graph_.n_values(), true);
  for (const Unit& un : units_.units)
    for (NodeId m : un.nodes) {
      const Node& node = graph_.node(m);
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const ValueId v = node.operands[i], root = made_root(v);
        bool sliced = node.op == OpKind::kScan && use(v).canon == root;
        if (sliced) {
          const auto& p = node.as<ScanParams>();
          const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
          sliced = i >= first_x && p.in_axes[i - first_x] == 0;
        }
        if (!sliced) sliced_only_[root.index()] = false;
      }
    }
  for (ValueId v : graph_.outputs()) sliced_only_[made_root(v).index()] = false;
}

ValueId Level::made_root(ValueId v) const {
  return use(v).splat && use(use(v).canon).unit >= 0 ? use(v).canon : use(v).root;
}

void Level::mark_whole_operands(const Node& scan) {
  const auto& p = scan.as<ScanParams>();
  const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
  for (size_t i = 0; i < scan.operands.size(); ++i) {
    const ValueUse& u = use(scan.operands[i]);
    if (i < first_x || p.in_axes[i - first_x] != 0 || u.canon != u.root)
      units_.uses[u.root.index()].needs_contiguous = true;
  }
}

}  // namespace lowering
}  // namespace stow
