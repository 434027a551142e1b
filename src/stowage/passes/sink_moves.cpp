#include "stowage/passes/sink_moves.h"

#include <map>
#include <optional>

#include "stowage/ir/utilities.h"

namespace stow {
namespace {

class Sinker {
 public:
  explicit Sinker(const Graph& from) : from_(from), map_(from) {}

  Graph run() {
    count_readers();
    choose();
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) emit(node);
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  // Counts the readers of each value, including outputs, and finds the last move that reads it.
  void count_readers() {
    n_readers_ = count_uses(from_);
    mover_.resize(from_.n_values());
    for (size_t n = 0; n < from_.n_nodes(); ++n)
      if (from_.nodes()[n].op == OpKind::kDevicePut)
        for (ValueId v : from_.nodes()[n].operands) mover_[v.index()] = NodeId(n);
  }

  bool can_take(const Node& node, int result) const {
    if (node.op == OpKind::kConcatenate) return true;
    if (node.op == OpKind::kReshape) {
      const ValueId x = node.operands[0];
      return !from_.is_input(x) && n_readers_[x.index()] == 1 &&
             can_take(from_.def(x), from_.value(x).index);
    }
    return is_stacked(from_, node.result(result));
  }

  // Finds, from the last reader back, values that are made in the memory to which they are moved.
  void choose() {
    goes_to_.resize(from_.n_values());
    skipped_.resize(from_.n_nodes());
    for (size_t n = from_.n_nodes(); n-- > 0;) {
      const Node& node = from_.nodes()[n];
      for (int i = 0; i < node.n_results; ++i) {
        const ValueId v = node.result(i);
        if (!can_take(node, i) || from_.type(v).kind != MemoryKind::kDevice ||
            n_readers_[v.index()] != 1)
          continue;
        if (mover_[v.index()].valid()) {
          const Node& move = from_.node(mover_[v.index()]);
          if (move.as<DevicePutParams>().kind == MemoryKind::kDevice) continue;
          goes_to_[v.index()] = move.as<DevicePutParams>().kind;
          moved_by_[v.index()] = move.provenance;
          skipped_[mover_[v.index()].index()] = true;
        } else if (wanted_.count(v)) {
          goes_to_[v.index()] = wanted_.at(v).first;
          moved_by_[v.index()] = wanted_.at(v).second;
        }
      }
      // An operand that is only viewed goes to the memory of its view.
      if ((node.op == OpKind::kReshape || node.op == OpKind::kConcatenate) &&
          goes_to_[node.result().index()])
        for (ValueId v : node.operands)
          wanted_[v] = {*goes_to_[node.result().index()], moved_by_[node.result().index()]};
    }
  }

  ValueId put(Graph& graph, ValueId v, MemoryKind kind, const ProvenancePtr& provenance,
              bool backward) {
    ArrayType type = graph.type(v);
    if (type.kind == kind) return v;
    type.kind = kind;
    Node node{.op = OpKind::kDevicePut, .params = DevicePutParams{kind}, .operands = {v}};
    node.provenance = made_by(Pass::kTransfers, provenance);
    node.backward = backward;
    return graph.node(graph.add_node(std::move(node), {&type, 1})).result();
  }

  void emit(const Node& node) {
    const auto n = static_cast<size_t>(&node - from_.nodes().data());
    if (skipped_[n]) {  // its operand is there already
      map_.set(node.result(), map_[node.operands[0]]);
      return;
    }
    Node copy = node;
    for (ValueId& v : copy.operands) v = map_[v];
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) {
      types.push_back(from_.type(node.result(i)));
      if (const auto& kind = goes_to_[node.result(i).index()]) types.back().kind = *kind;
    }
    if (node.op == OpKind::kScan) {
      copy.graphs[0] = moved_body(node);
    } else {
      for (GraphPtr& nested : copy.graphs)
        nested = std::make_shared<const Graph>(sink_moves(*nested));
      if (!types.empty() && goes_to_[node.first_result.index()])
        for (ValueId& v : copy.operands)
          v = put(to_, v, types[0].kind, moved_by_[node.first_result.index()], node.backward);
    }
    const NodeId id = to_.add_node(std::move(copy), types);
    for (int i = 0; i < node.n_results; ++i) map_.set(node.result(i), to_.node(id).result(i));
  }

  // Returns the body with moves of the slices that go to another memory; these moves sink further.
  GraphPtr moved_body(const Node& scan) {
    Graph body = *scan.graphs[0];
    std::vector<ValueId> outputs = body.outputs();
    for (int i = scan.as<ScanParams>().n_carries; i < scan.n_results; ++i)
      if (const auto& kind = goes_to_[scan.result(i).index()])
        outputs[static_cast<size_t>(i)] = put(body, outputs[static_cast<size_t>(i)], *kind,
                                              moved_by_[scan.result(i).index()], scan.backward);
    body.set_outputs(std::move(outputs));
    return std::make_shared<const Graph>(sink_moves(body));
  }

  const Graph& from_;
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::vector<int> n_readers_;
  std::vector<NodeId> mover_;
  std::vector<std::optional<MemoryKind>> goes_to_;  // of values
  std::map<size_t, ProvenancePtr> moved_by_;
  std::map<ValueId, std::pair<MemoryKind, ProvenancePtr>> wanted_;
  std::vector<bool> skipped_;  // of nodes
};

}  // namespace

Graph sink_moves(const Graph& graph) { return Sinker(graph).run(); }

bool is_stacked(const Graph& graph, ValueId v) {
  if (graph.is_input(v) || graph.def(v).op != OpKind::kScan) return false;
  const Node& scan = graph.def(v);
  const auto& p = scan.as<ScanParams>();
  const int result = graph.value(v).index;
  return result >= p.n_carries && result < scan.n_results - p.n_residuals;
}

}  // namespace stow
