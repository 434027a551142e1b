#include "stowage/passes/slice_work.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

// By scan, the values of which its body is to make slices, in the order of the graph.
using Wanted = std::map<NodeId, std::vector<ValueId>>;

bool is_scan_result(const Graph& graph, ValueId v) {
  return !graph.is_input(v) && graph.def(v).op == OpKind::kScan;
}

// Returns the index of a value among its scan's results if it stacks slices along the first axis,
// else -1.
int stack_index(const Graph& graph, ValueId v) {
  const auto& p = graph.def(v).as<ScanParams>();
  const int i = graph.value(v).index;
  return i >= p.n_carries && p.out_axes[static_cast<size_t>(i - p.n_carries)] == 0 ? i : -1;
}

// Returns the device value in the scan's body whose slices a stack holds, moved to another memory
// or not. Invalid if the body makes it in another memory.
ValueId slice_here(const Graph& graph, ValueId stack) {
  const int i = stack_index(graph, stack);
  if (i < 0) return ValueId();
  const Graph& body = *graph.def(stack).graphs[0];
  const ValueId slice = body.outputs()[static_cast<size_t>(i)];
  if (body.type(slice).kind == MemoryKind::kDevice) return slice;
  if (body.is_input(slice) || body.def(slice).op != OpKind::kDevicePut) return ValueId();
  const ValueId here = body.def(slice).operands[0];
  return body.type(here).kind == MemoryKind::kDevice ? here : ValueId();
}

// ---- the graph in which that work is done in the bodies ----

class Rewriter {
 public:
  Rewriter(const Graph& from, const Wanted& wanted)
      : from_(from), wanted_(wanted), map_(from), builder_(to_) {}

  Graph run() {
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) emit(NodeId(n));
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(to_);
  }

 private:
  // The values that the body gets in addition to its own.
  struct Given {
    std::vector<ValueId> scalars, stacks;
  };
  struct Body {
    const Node& scan;
    GraphBuilder b;
    std::map<ValueId, Val> known;  // of from_: a slice of it, or for a scalar itself
    const ValueMap& inner;         // of the old body
  };

  void emit(NodeId id) {
    const Node& node = from_.node(id);
    if (node.n_results > 0 && map_.has(node.first_result)) return;
    const auto found = wanted_.find(id);
    if (found == wanted_.end())
      copy_node(from_, node, to_, map_, regions_);
    else
      emit_scan(node, found->second);
  }
  // Returns a value that may stand behind the node that is being emitted.
  ValueId ensure(ValueId v) {
    if (!map_.has(v)) {
      for (ValueId operand : from_.def(v).operands) ensure(operand);
      emit(from_.value(v).node);
    }
    return map_[v];
  }

  void emit_scan(const Node& node, const std::vector<ValueId>& wanted) {
    Given given;
    std::set<ValueId> seen;
    for (ValueId v : wanted) collect(node, v, given, seen);
    Node copy = node;
    for (ValueId& v : copy.operands) v = map_[v];
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    copy.graphs[0] = body_with(node, wanted, given);
    auto& p = std::get<ScanParams>(copy.params);
    builder_.provenance = node.provenance;
    builder_.backward = node.backward;
    std::vector<ValueId> scalars;
    for (ValueId v : given.scalars) scalars.push_back(reshape(Val(builder_, ensure(v)), {}).id());
    copy.operands.insert(copy.operands.begin() + p.n_consts, scalars.begin(), scalars.end());
    p.n_consts += static_cast<int>(scalars.size());
    for (ValueId v : given.stacks) {
      copy.operands.push_back(map_[v]);
      p.in_axes.push_back(0);
    }
    // New results come before the residuals, which are last.
    const int first_new = node.n_results - p.n_residuals;
    p.out_axes.insert(p.out_axes.begin() + (first_new - p.n_carries), wanted.size(), 0);
    copy.n_results += static_cast<int>(wanted.size());
    std::vector<ValueId> results;
    for (int i = 0; i < node.n_results; ++i) results.push_back(node.result(i));
    results.insert(results.begin() + first_new, wanted.begin(), wanted.end());
    std::vector<ArrayType> types;
    for (ValueId v : results) types.push_back(from_.type(v));
    const NodeId id = to_.add_node(std::move(copy), types);
    for (size_t i = 0; i < results.size(); ++i)
      map_.set(results[i], to_.node(id).result(static_cast<int>(i)));
  }

  // Collects scalars and stacks that work on a value's slices needs and the body lacks.
  void collect(const Node& scan, ValueId v, Given& given, std::set<ValueId>& seen) const {
    if (!seen.insert(v).second || is_uniform_constant(from_, v)) return;
    if (const ValueId source = uniform_source(from_, v); source.valid()) {
      if (seen.insert(source).second) given.scalars.push_back(source);
      return;
    }
    if (from_.is_input(v)) {
      if (scanned_at(scan, v) < 0) given.stacks.push_back(v);
      return;
    }
    if (is_scan_result(from_, v)) return;
    for (ValueId operand : from_.def(v).operands) collect(scan, operand, given, seen);
  }
  // Returns the operand of the scan that gives the body slices of an argument of the graph.
  static int scanned_at(const Node& scan, ValueId v) {
    const auto& p = scan.as<ScanParams>();
    const auto first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    for (size_t i = first_x; i < scan.operands.size(); ++i)
      if (scan.operands[i] == v && p.in_axes[i - first_x] == 0) return static_cast<int>(i);
    return -1;
  }

  GraphPtr body_with(const Node& scan, const std::vector<ValueId>& wanted, const Given& given) {
    const Graph& old = *scan.graphs[0];
    auto graph = std::make_shared<Graph>();
    ValueMap inner(old);
    Body body{scan, GraphBuilder(*graph), {}, inner};
    const auto n_consts = static_cast<size_t>(scan.as<ScanParams>().n_consts);
    for (size_t i = 0; i < old.inputs().size(); ++i) {
      if (i == n_consts) add_scalars(body, *graph, given);
      copy_input(old, i, *graph, inner);
    }
    if (n_consts == old.inputs().size()) add_scalars(body, *graph, given);
    for (ValueId v : given.stacks) {
      ArrayType type = from_.type(v);
      type.shape = slice_shape(v);
      body.known.emplace(v, Val(body.b, graph->add_input(type)));
    }
    const std::vector<RegionId> regions = import_regions(old, *graph, RegionId());
    for (const Node& node : old.nodes()) {
      copy_node(old, node, *graph, inner, regions);
      reuse_fetch(body, old, node);
    }
    std::vector<ValueId> outputs = inner.images(old.outputs()), made;
    body.b.pass = Pass::kTransfers;
    for (ValueId v : wanted) made.push_back(on_slice(body, v).id());
    outputs.insert(outputs.end() - scan.as<ScanParams>().n_residuals, made.begin(), made.end());
    graph->set_outputs(std::move(outputs));
    return graph;
  }
  void add_scalars(Body& body, Graph& graph, const Given& given) const {
    for (ValueId v : given.scalars) {
      ArrayType type = from_.type(v);
      type.shape = Shape();
      body.known.emplace(v, Val(body.b, graph.add_input(type)));
    }
  }
  // A slice of an argument that the body moves to the device anyway is moved once.
  void reuse_fetch(Body& body, const Graph& old, const Node& node) {
    if (!is_fetch(old, node.first_result) || !old.is_input(node.operands[0])) return;
    const auto i = static_cast<size_t>(old.value(node.operands[0]).index);
    if (scanned_at(body.scan, body.scan.operands[i]) == static_cast<int>(i))
      fetched_.emplace(std::pair(&body.scan, body.scan.operands[i]), body.inner[node.first_result]);
  }

  Shape slice_shape(ValueId v) const {
    const Dims& dims = from_.type(v).shape.dims();
    return Shape(Dims(dims.begin() + 1, dims.end()));
  }

  // Returns a value of this graph as it is in one iteration of the scan.
  Val on_slice(Body& body, ValueId v) {
    if (const auto it = body.known.find(v); it != body.known.end()) return it->second;
    return body.known.emplace(v, make_slice(body, v)).first->second;
  }
  Val make_slice(Body& body, ValueId v) {
    GraphBuilder& b = body.b;
    if (is_uniform_constant(from_, v)) return uniform_constant(b, from_, v, slice_shape(v));
    if (const ValueId source = uniform_source(from_, v); source.valid())
      return broadcast_scalar(body.known.at(source), slice_shape(v));
    if (from_.is_input(v))
      return Val(
          b,
          body.inner[body.scan.graphs[0]->inputs()[static_cast<size_t>(scanned_at(body.scan, v))]]);
    if (is_scan_result(from_, v)) return Val(b, body.inner[slice_here(from_, v)]);
    const Node& node = from_.def(v);
    if (is_fetch(from_, v)) {
      const ValueId there = node.operands[0];
      if (is_scan_result(from_, there)) return on_slice(body, there);
      if (const auto it = fetched_.find({&body.scan, there}); it != fetched_.end())
        return Val(b, it->second);
    }
    const auto stand_for_node = [&] {  // on_slice() of an operand changes both
      b.provenance = node.provenance;
      b.backward = node.backward;
    };
    std::vector<Val> operands;
    for (ValueId operand : node.operands) {
      stand_for_node();
      operands.push_back(on_slice(body, operand));
    }
    stand_for_node();
    if (node.op == OpKind::kReshape) return reshape(operands[0], slice_shape(v));
    if (node.op == OpKind::kBroadcast) {
      const Dims& axes = node.as<BroadcastParams>().axes;
      Dims rest(axes.begin() + 1, axes.end());
      for (int64_t& axis : rest) --axis;
      return broadcast(operands[0], slice_shape(v), rest);
    }
    Params params = node.params;
    if (op_class(node.op) == OpClass::kReduce)
      for (int64_t& axis : std::get<AxesParams>(params).axes) --axis;
    return b.add(node.op, std::move(params), operands).front();
  }

  const Graph& from_;
  const Wanted& wanted_;
  Graph to_;
  ValueMap map_;
  GraphBuilder builder_;
  std::vector<RegionId> regions_;
  std::map<std::pair<const Node*, ValueId>, ValueId> fetched_;  // by scan and argument
};

Graph rewritten(const Graph& graph, const Wanted& wanted) {
  return wanted.empty() ? graph : Rewriter(graph, wanted).run();
}

// ---- what can be done on slices: reductions over what has left ----

Wanted find_sums(const Graph& graph) {
  Wanted sums;
  std::vector<NodeId> slices_of(graph.n_values());  // the scan whose slices a value is made of
  for (const Node& node : graph.nodes()) {
    const ValueId v = node.first_result;
    if (is_fetch(graph, v)) {
      const ValueId stack = node.operands[0];
      if (is_scan_result(graph, stack) && slice_here(graph, stack).valid())
        slices_of[v.index()] = graph.value(stack).node;
      continue;
    }
    const bool reduces = first_reduced_axis(node) > 0;
    if (!reduces && op_class(node.op) != OpClass::kElementwise) continue;
    NodeId scan;
    bool alone = true;
    for (ValueId operand : node.operands) {
      if (is_uniform_constant(graph, operand)) continue;
      const NodeId of = slices_of[operand.index()];
      alone = alone && of.valid() && (!scan.valid() || of == scan);
      scan = of;
    }
    if (!alone || !scan.valid()) continue;
    if (reduces)
      sums[scan].push_back(v);
    else
      slices_of[v.index()] = scan;
  }
  return sums;
}

// ---- and updates ----

class UpdateFinder {
 public:
  explicit UpdateFinder(const Graph& graph)
      : graph_(graph), users_(graph), returned_(graph.n_values(), false) {
    for (ValueId v : graph.outputs()) returned_[v.index()] = true;
  }

  Wanted run() {
    Wanted wanted;
    for (size_t n = 0; n < graph_.n_nodes(); ++n)
      if (graph_.node(NodeId(n)).op == OpKind::kScan)
        if (std::vector<ValueId> found = updates_after(NodeId(n)); !found.empty())
          wanted.emplace(NodeId(n), std::move(found));
    return wanted;
  }

 private:
  enum class Role : uint8_t {
    kNone,
    kStack,   // stacked by the scan
    kFree,    // made of arguments alone, of as many slices, slice by slice
    kMember,  // made of stacks slice by slice
    kSum      // a reduction of stacks or members that keeps the first axis
  };

  Role& role(ValueId v) { return roles_[v.index()]; }
  bool is_sliced(ValueId v) { return role(v) == Role::kStack || role(v) == Role::kMember; }

  std::vector<ValueId> updates_after(NodeId scan) {
    length_ = graph_.node(scan).as<ScanParams>().length;
    roles_.assign(graph_.n_values(), Role::kNone);
    below_.assign(graph_.n_nodes(), false);
    group_.resize(graph_.n_values());
    std::iota(group_.begin(), group_.end(), size_t{0});
    for (ValueId v : graph_.inputs())
      if (has_slices(v)) role(v) = Role::kFree;
    for (int i = 0; i < graph_.node(scan).n_results; ++i)
      if (const ValueId v = graph_.node(scan).result(i); slice_here(graph_, v).valid())
        role(v) = Role::kStack;
    below_[scan.index()] = true;
    for (size_t n = 0; n < graph_.n_nodes(); ++n)
      if (n != scan.index()) look_at(NodeId(n));
    return results_of_groups();
  }
  bool has_slices(ValueId v) const {
    const Shape& shape = graph_.type(v).shape;
    return shape.rank() > 0 && shape[0] == length_;
  }

  void look_at(NodeId id) {
    const Node& node = graph_.node(id);
    for (ValueId v : node.operands)
      if (const NodeId maker = graph_.value(v).node; maker.valid() && below_[maker.index()])
        below_[id.index()] = true;
    if (node.n_results != 1) return;
    const ValueId v = node.first_result;
    if (is_fetch(graph_, v) && role(node.operands[0]) == Role::kFree) {
      role(v) = Role::kFree;
      return;
    }
    const bool reduces = first_reduced_axis(node) > 0;
    const bool moves = node.op == OpKind::kDevicePut;
    const bool views = keeps_slices(node);
    if (!reduces && !moves && !views && op_class(node.op) != OpClass::kElementwise) return;
    // A scale of each row is a reduction that divides the rows and is kept. Other readers of
    // reductions, such as a norm, stand behind the scan.
    const auto is_read = [&](ValueId operand) {
      return is_sliced(operand) || ((views || moves) && role(operand) == Role::kSum);
    };
    bool sliced = false, free = false;
    for (ValueId operand : node.operands) {
      const bool is_free = role(operand) == Role::kFree;
      sliced = sliced || is_read(operand);
      free = free || is_free;
      if (!is_read(operand) && !is_free && !is_uniform_before(operand)) return;
    }
    if (!sliced && free && !reduces && !moves && has_slices(v)) role(v) = Role::kFree;
    if (!sliced || !has_slices(v)) return;
    role(v) = reduces ? Role::kSum : Role::kMember;
    for (ValueId operand : node.operands)
      if (is_read(operand)) join(operand, v);
  }
  // True if a view's slices along the first axis are views of its operand's slices.
  bool keeps_slices(const Node& node) const {
    if (node.op != OpKind::kReshape && node.op != OpKind::kBroadcast) return false;
    if (!has_slices(node.operands[0]) || !has_slices(node.first_result)) return false;
    if (node.op == OpKind::kReshape) return length_ > 0;  // of no slices any may become any
    const Dims& axes = node.as<BroadcastParams>().axes;
    return axes[0] == 0;
  }
  bool is_uniform_before(ValueId v) const {
    const ValueId source = uniform_source(graph_, v);
    if (!source.valid()) return false;
    const NodeId maker = graph_.value(source).node;
    return !maker.valid() || !below_[maker.index()];
  }

  size_t group_of(ValueId v) {
    size_t at = v.index();
    while (group_[at] != at) at = group_[at] = group_[group_[at]];
    return at;
  }
  void join(ValueId a, ValueId b) { group_[group_of(a)] = group_of(b); }

  // Returns the results of whole groups: of those whose stacks and members nothing else reads, and
  // that end in results.
  std::vector<ValueId> results_of_groups() {
    std::set<size_t> ends, open;
    for (size_t i = 0; i < graph_.n_values(); ++i) {
      const ValueId v(i);
      if (!is_sliced(v)) continue;
      if (returned_[i]) (role(v) == Role::kMember ? ends : open).insert(group_of(v));
      for (const Use& use : users_.of(v)) {
        const Node& reader = graph_.node(use.node);
        const Role of = reader.n_results == 1 ? role(reader.first_result) : Role::kNone;
        if (of != Role::kMember && of != Role::kSum) open.insert(group_of(v));
      }
    }
    std::vector<ValueId> results;
    for (size_t i = 0; i < graph_.n_values(); ++i) {
      const ValueId v(i);
      const bool leaves = role(v) == Role::kSum || (role(v) == Role::kMember && returned_[i]);
      if (leaves && ends.contains(group_of(v)) && !open.contains(group_of(v))) results.push_back(v);
    }
    return results;
  }

  const Graph& graph_;
  const Users users_;
  std::vector<bool> returned_;
  int64_t length_ = 0;
  std::vector<Role> roles_;
  std::vector<bool> below_;    // nodes that wait for the scan
  std::vector<size_t> group_;  // of values: what must go into the body together
};

}  // namespace

Graph sum_slices(const Graph& graph) {
  return rewritten(graph, find_sums(graph));
}

namespace {

// Returns the graph with update_slices() done in the bodies of its scans.
Graph with_bodies_updated(const Graph& graph) {
  Graph to;
  ValueMap map(graph);
  copy_inputs(graph, to, map);
  const std::vector<RegionId> regions = import_regions(graph, to, RegionId());
  bool changed = false;
  for (const Node& node : graph.nodes()) {
    Node copy = node;
    if (node.op == OpKind::kScan) {
      Graph updated = update_slices(*node.graphs[0]);
      if (!equal(updated, *node.graphs[0])) {
        copy.graphs[0] = std::make_shared<const Graph>(std::move(updated));
        changed = true;
      }
    }
    copy_node(graph, copy, to, map, regions);
  }
  if (!changed) return graph;
  to.set_outputs(map.images(graph.outputs()));
  return to;
}

}  // namespace

Graph update_slices(const Graph& graph) {
  const Graph inner = with_bodies_updated(graph);
  return rewritten(inner, UpdateFinder(inner).run());
}

}  // namespace stow
