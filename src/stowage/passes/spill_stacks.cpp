#include "stowage/passes/spill_stacks.h"

#include <algorithm>
#include <map>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/sink_moves.h"

namespace stow {
namespace {

// Finds stacks of scans, whole or in parts, that only one node reads, and the memory to which they
// go.
class Finder {
 public:
  explicit Finder(const Graph& graph)
      : graph_(graph), users_(graph), returned_(graph.n_values(), false) {
    for (ValueId v : graph.outputs()) returned_[v.index()] = true;
  }
  std::map<ValueId, MemoryKind> run() {
    for (const Node& node : graph_.nodes()) {
      if (node.op != OpKind::kDevicePut) continue;
      const MemoryKind kind = graph_.type(node.first_result).kind;
      if (kind != MemoryKind::kDevice && is_work(node.operands[0])) find(node.operands[0], kind);
    }
    return std::move(found_);
  }

 private:
  bool is_read_once(ValueId v) const {
    return !graph_.is_input(v) && !returned_[v.index()] && users_.of(v).size() == 1 &&
           graph_.type(v).kind == MemoryKind::kDevice;
  }
  bool is_work(ValueId v) const {
    return is_read_once(v) && op_class(graph_.def(v).op) == OpClass::kElementwise;
  }
  bool is_stack(ValueId v) const {
    if (!is_read_once(v)) return false;
    const Node& node = graph_.def(v);
    if (node.op == OpKind::kReshape) return is_stack(node.operands[0]);
    if (node.op == OpKind::kConcatenate)
      return std::any_of(node.operands.begin(), node.operands.end(),
                         [&](ValueId part) { return is_stack(part); });
    return is_stacked(graph_, v);
  }
  void find(ValueId work, MemoryKind kind) {
    for (ValueId v : graph_.def(work).operands)
      if (is_stack(v))
        found_.emplace(v, kind);
      else if (is_work(v))
        find(v, kind);
  }

  const Graph& graph_;
  const Users users_;
  std::vector<bool> returned_;
  std::map<ValueId, MemoryKind> found_;
};

}  // namespace

Graph spill_stacks(const Graph& graph) {
  const std::map<ValueId, MemoryKind> spilled = Finder(graph).run();
  if (spilled.empty()) return graph;
  Graph to;
  GraphBuilder builder(to);
  builder.pass = Pass::kTransfers;
  ValueMap map(graph);
  copy_inputs(graph, to, map);
  const std::vector<RegionId> regions = import_regions(graph, to, RegionId());
  for (const Node& node : graph.nodes()) {
    copy_node(graph, node, to, map, regions);
    for (int i = 0; i < node.n_results; ++i)
      if (const auto it = spilled.find(node.result(i)); it != spilled.end()) {
        builder.provenance = node.provenance;
        builder.backward = node.backward;
        const Val there = device_put(Val(builder, map[node.result(i)]), it->second);
        map.set(node.result(i), device_put(there, MemoryKind::kDevice).id());
      }
  }
  to.set_outputs(map.images(graph.outputs()));
  return sink_moves(to);
}

}  // namespace stow
