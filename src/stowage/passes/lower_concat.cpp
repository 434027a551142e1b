// Concatenations, whose parts are made where they belong.
#include "stowage/passes/lower_level.h"

#include <fmt/format.h>

#include <algorithm>

namespace stow::lowering {

void Level::plan_concat(int u) {
  const Node& node = graph_.node(unit(u).nodes[0]);
  const ValueId result = node.first_result;
  const bool fresh = !has_destination(result);
  Destination& own = destination_of(result, node);
  if (fresh && context_.options.reuse)
    if (std::vector<int64_t> pieces = concat_pieces(node); pieces.size() > 1) {
      context_.schedule.buffers[own.view.buffer.index()].parts = std::move(pieces);
      own.begin_group = kPieces;
    }
  if (own.begin_group == kOwnLife) {
    own.begin_group = static_cast<int>(begun_.size());
    begun_.push_back(false);
  }
  const Destination whole = own;
  const bool in_pieces = whole.begin_group == kPieces;
  int64_t at = 0;
  for (ValueId part : node.operands) {
    const std::optional<View> view = root_view(part, part_view(whole.view, node, part, at));
    const ValueId root = use(part).root;
    const int maker = use(root).unit;
    if (!view || maker < 0 || has_destination(root) || storage_[root.index()] ||
        (use(root).needs_contiguous && !is_contiguous(*view)) || last_use(root) == kForever)
      continue;
    const UnitKind kind = unit(maker).kind;
    const bool stacked = kind == UnitKind::kScan &&
                         (in_pieces || whole.begin_group == kInPlace) &&
                         graph_.value(root).index >= graph_.def(root).as<ScanParams>().n_carries;
    if (kind == UnitKind::kRows || kind == UnitKind::kOp || stacked)
      destinations_[root.index()] = Destination{*view, whole.begin_group};
  }
}

bool Level::concat_can_share(ValueId v, ValueId input) const {
  if (use(v).unit < 0 || unit(use(v).unit).kind != UnitKind::kConcat) return false;
  const Node& node = graph_.def(v);
  const View whole = contiguous_view(storage_[input.index()]->buffer, graph_.type(v));
  std::vector<int> makers;
  int64_t at = 0;
  for (ValueId part : node.operands) {
    const std::optional<View> stack = root_view(part, part_view(whole, node, part, at));
    const ValueId root = use(part).root;
    const int u = use(root).unit;
    if (!stack || u < 0 || unit(u).kind != UnitKind::kScan || last_use(root) != definition(v))
      return false;
    const Node& scan = graph_.def(root);
    const auto& p = scan.as<ScanParams>();
    const int i = sole_slices(scan, input), j = graph_.value(root).index - p.n_carries;
    if (i < 0 || j < 0 || p.out_axes[static_cast<size_t>(j)] != 0 || p.length == 0 ||
        !same_window(units_.windows[scan.operands[static_cast<size_t>(i)].index()], *stack) ||
        !slices_can_share(u, i, j))
      return false;
    makers.push_back(u);
  }
  for (size_t u = 0; u < units_.units.size(); ++u) {
    if (std::find(makers.begin(), makers.end(), static_cast<int>(u)) != makers.end()) continue;
    for (NodeId m : units_.units[u].nodes)
      for (ValueId o : graph_.node(m).operands)
        if (made_root(o) == input) return false;
  }
  return last_use(input) != kForever;
}

std::optional<View> Level::root_view(ValueId v, View view) const {
  std::optional<View> at = std::move(view);
  while (at && use(v).root != v) {
    const Node& node = graph_.def(v);
    size_t i = 0;
    if (op_class(node.op) == OpClass::kView)
      at = invert_view_op(graph_, node, *at);
    else
      i = static_cast<size_t>(graph_.value(v).index) +
          (node.op == OpKind::kScan ? static_cast<size_t>(node.as<ScanParams>().n_consts) : 0);
    v = node.operands[i];
  }
  return at;
}

std::vector<int64_t> Level::concat_pieces(const Node& node) const {
  const size_t axis = static_cast<size_t>(node.as<AxisParams>().axis);
  const ArrayType& type = graph_.type(node.first_result);
  for (size_t a = 0; a < axis; ++a)
    if (type.shape.dims()[a] != 1) return {};
  std::vector<int64_t> pieces;
  int64_t at = 0;
  for (ValueId part : node.operands) {
    const ArrayType& t = graph_.type(part);
    const ValueId root = use(part).root;
    int64_t n = 1;
    if (!graph_.is_input(root) && graph_.def(root).op == OpKind::kScan && t.bytes() > 0)
      n = std::max<int64_t>(1, graph_.def(root).as<ScanParams>().length);
    if (t.bytes() % n != 0) n = 1;
    const int64_t most = context_.options.limits.concat_pieces;
    if (n > 1 && static_cast<int64_t>(pieces.size()) + n > most) {
      context_.schedule.limits.push_back(fmt::format(
          "lower: {} stacked slices are concatenated, and live as a whole beyond {} pieces", n,
          most));
      n = 1;
    }
    for (int64_t i = 0; i < n && t.bytes() > 0; ++i) pieces.push_back(at + t.bytes() / n * i);
    at += t.bytes();
  }
  return pieces;
}

View Level::part_view(View view, const Node& node, ValueId part, int64_t& at) const {
  const size_t axis = static_cast<size_t>(node.as<AxisParams>().axis);
  const int64_t extent = graph_.type(part).shape.dims()[axis];
  if (view.elems() > 0) view.offset_bytes += at * view.strides[axis] * dtype_bytes(view.dtype);
  view.dims[axis] = extent;
  at += extent;
  return view;
}

Destination& Level::destination_of(ValueId v, const Node& node) {
  std::optional<Destination>& d = destinations_[v.index()];
  if (!d) {
    d = Destination{new_buffer(v, node), kOwnLife};
    reusable_[v.index()] = context_.options.reuse;
  }
  return *d;
}

View Level::new_buffer(ValueId v, const Node& node) {
  return contiguous_view(context_.add_buffer(graph_.type(v).bytes(), node.provenance,
                                             std::string(op_name(node.op)), 1, graph_.type(v).kind),
                         graph_.type(v));
}

void Level::emit_concat(int u) {
  const Node& node = graph_.node(unit(u).nodes[0]);
  const Destination whole = destination_of(node.first_result, node);
  int64_t at = 0;
  bool parts_die = true;  // false: a part is read later, so the whole must not be written over
  for (ValueId part : node.operands) {
    const View to = part_view(whole.view, node, part, at);
    const View from = access(part);
    if (same_window(from, to)) {
      parts_die &= last_use(made_root(part)) <= position(u);
      continue;
    }
    emit_copy(from, to, begin(whole), node.provenance);
  }
  storage_[node.first_result.index()] = whole.view;
  // If a part is read later, the concatenation must not be written over.
  if (!parts_die) reusable_[node.first_result.index()] = false;
}

bool Level::begin(const Destination& d) {
  if (d.begin_group < 0) return true;
  const bool first = !begun_[static_cast<size_t>(d.begin_group)];
  begun_[static_cast<size_t>(d.begin_group)] = true;
  return first;
}

}  // namespace stow::lowering
