#include "stowage/passes/sink_into_scans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

class WorkSinker {
 public:
  WorkSinker(const Graph& from, bool again)
      : from_(from), again_(again), users_(from), returned_(from.n_values(), false), map_(from),
        builder_(to_) {
    for (ValueId v : from.outputs()) returned_[v.index()] = true;
  }

  Graph run() {
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      const std::set<size_t> sinking = operands_to_make(node);
      if (sinking.empty())
        copy_node(from_, node, to_, map_, regions_);
      else
        emit_scan(node, sinking);
      changed_ |= !sinking.empty();
    }
    if (!changed_) return from_;
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(to_);
  }

 private:
  // ---- what can be made slice by slice ----

  bool is_uniform(ValueId v) const { return uniform_source(from_, v).valid(); }
  // True for a move to the device that only this scan needs whole: other readers are streamed.
  bool is_slicewise_fetch(const Node& scan, ValueId v) const {
    if (!is_fetch(from_, v) || returned_[v.index()]) return false;
    return std::all_of(users_.of(v).begin(), users_.of(v).end(), [&](const Use& use) {
      const Node& reader = from_.node(use.node);
      if (&reader == &scan || (again_ && reader.op == OpKind::kScan))
        return static_cast<size_t>(use.operand) >= first_scanned(reader);
      return op_class(reader.op) == OpClass::kElementwise || first_reduced_axis(reader) > 0;
    });
  }
  // True for elementwise work over fetched values and scalars that only one node reads.
  bool is_work(const Node& scan, ValueId v) const {
    if (from_.is_input(v) || returned_[v.index()] || users_.of(v).size() != 1) return false;
    const Node& node = from_.def(v);
    if (op_class(node.op) != OpClass::kElementwise || is_uniform(v)) return false;
    return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
      return is_uniform(operand) || is_slicewise_fetch(scan, operand) || is_work(scan, operand);
    });
  }
  std::set<size_t> operands_to_make(const Node& node) const {
    std::set<size_t> found;
    if (node.op != OpKind::kScan) return found;
    for (size_t i = first_scanned(node); i < node.operands.size(); ++i)
      if (const ValueId v = node.operands[i]; is_slicewise_fetch(node, v) || is_work(node, v))
        found.insert(i);
    return found;
  }
  static size_t first_scanned(const Node& scan) {
    const auto& p = scan.as<ScanParams>();
    return static_cast<size_t>(p.n_consts + p.n_carries);
  }

  // ---- the scan that makes it ----

  // The values that the body gets in addition to its own.
  struct Given {
    std::vector<ValueId> scalars;
    std::vector<std::pair<ValueId, int64_t>> stacks;  // elsewhere, with the axis that is scanned
  };
  void collect(ValueId v, int64_t axis, Given& given) const {
    if (is_uniform_constant(from_, v)) return;
    if (const ValueId source = uniform_source(from_, v); source.valid()) {
      if (!contains(given.scalars, source)) given.scalars.push_back(source);
    } else if (is_fetch(from_, v)) {
      const std::pair stack(from_.def(v).operands[0], axis);
      if (!contains(given.stacks, stack)) given.stacks.push_back(stack);
    } else {
      for (ValueId operand : from_.def(v).operands) collect(operand, axis, given);
    }
  }
  template <typename T>
  static bool contains(const std::vector<T>& list, const T& x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  }

  void emit_scan(const Node& node, const std::set<size_t>& sinking) {
    const auto& old = node.as<ScanParams>();
    const size_t n_consts = static_cast<size_t>(old.n_consts), first = first_scanned(node);
    Given given;
    for (size_t i : sinking) collect(node.operands[i], old.in_axes[i - first], given);
    Node copy = node;
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    copy.graphs[0] = body_with(node, sinking, given);
    builder_.provenance = node.provenance;
    builder_.backward = node.backward;
    auto& p = std::get<ScanParams>(copy.params);
    copy.operands.clear();
    p.in_axes.clear();
    const auto add_scalars = [&] {
      for (ValueId v : given.scalars)
        copy.operands.push_back(reshape(Val(builder_, map_[v]), {}).id());
    };
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (i == n_consts) add_scalars();
      if (sinking.contains(i)) continue;
      copy.operands.push_back(map_[node.operands[i]]);
      if (i >= first) p.in_axes.push_back(old.in_axes[i - first]);
    }
    for (const auto& [v, axis] : given.stacks) {
      copy.operands.push_back(map_[v]);
      p.in_axes.push_back(axis);
    }
    p.n_consts += static_cast<int>(given.scalars.size());
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(from_.type(node.result(i)));
    const NodeId id = to_.add_node(std::move(copy), types);
    for (int i = 0; i < node.n_results; ++i) map_.set(node.result(i), to_.node(id).result(i));
  }

  // By value of the outer graph: scalars, and slices along an axis, in the body.
  using Known = std::map<std::pair<ValueId, int64_t>, Val>;
  static constexpr int64_t kWhole = -1;

  GraphPtr body_with(const Node& scan, const std::set<size_t>& sinking, const Given& given) {
    const Graph& old = *scan.graphs[0];
    const auto& p = scan.as<ScanParams>();
    auto graph = std::make_shared<Graph>();
    GraphBuilder b(*graph);
    ValueMap inner(old);
    Known known;
    const auto add_input = [&](ValueId v, int64_t axis) {
      ArrayType type = from_.type(v);
      type.shape = axis == kWhole ? Shape() : slice_shape(v, axis);
      known.emplace(std::pair(v, axis), Val(b, graph->add_input(type)));
    };
    for (size_t i = 0; i < old.inputs().size(); ++i) {
      if (i == static_cast<size_t>(p.n_consts))
        for (ValueId v : given.scalars) add_input(v, kWhole);
      if (!sinking.contains(i)) copy_input(old, i, *graph, inner);
    }
    for (const auto& [v, axis] : given.stacks) add_input(v, axis);
    for (size_t i : sinking)
      inner.set(old.inputs()[i],
                on_slice(b, scan.operands[i], p.in_axes[i - first_scanned(scan)], known).id());
    const std::vector<RegionId> regions = import_regions(old, *graph, RegionId());
    for (const Node& node : old.nodes()) copy_node(old, node, *graph, inner, regions);
    graph->set_outputs(inner.images(old.outputs()));
    return graph;
  }
  Shape slice_shape(ValueId v, int64_t axis) const {
    Dims dims = from_.type(v).shape.dims();
    dims.erase(dims.begin() + axis);
    return Shape(std::move(dims));
  }

  Val on_slice(GraphBuilder& b, ValueId v, int64_t axis, Known& known) {
    if (const auto it = known.find({v, axis}); it != known.end()) return it->second;
    const Val made = make_slice(b, v, axis, known);
    return known.emplace(std::pair(v, axis), made).first->second;
  }
  Val make_slice(GraphBuilder& b, ValueId v, int64_t axis, Known& known) {
    const Shape shape = slice_shape(v, axis);
    if (is_uniform_constant(from_, v)) return uniform_constant(b, from_, v, shape);
    if (const ValueId source = uniform_source(from_, v); source.valid())
      return broadcast_scalar(known.at({source, kWhole}), shape);
    const Node& node = from_.def(v);
    std::vector<Val> operands;
    for (ValueId operand : node.operands) operands.push_back(on_slice(b, operand, axis, known));
    b.provenance = node.provenance;
    b.backward = node.backward;
    return b.add(node.op, node.params, operands).front();
  }

  const Graph& from_;
  const bool again_;
  const Users users_;
  std::vector<bool> returned_;
  Graph to_;
  ValueMap map_;
  GraphBuilder builder_;
  std::vector<RegionId> regions_;
  bool changed_ = false;
};

}  // namespace

Graph sink_into_scans(const Graph& graph, bool again) { return WorkSinker(graph, again).run(); }

}  // namespace stow
