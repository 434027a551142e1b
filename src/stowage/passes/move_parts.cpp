#include "stowage/passes/move_parts.h"

#include <algorithm>

#include "stowage/ir/utilities.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

// Marks values that are moved to the device only for slices of them.
std::vector<bool> find_parts(const Graph& graph) {
  const Users users(graph);
  std::vector<bool> parts(graph.n_values(), false);
  for (const Node& node : graph.nodes()) {
    const ValueId v = node.first_result;
    if (node.n_results != 1 || !is_fetch(graph, v)) continue;
    int64_t read = 0;
    bool sliced = true;
    for (const Use& use : users.of(v)) {
      const Node& reader = graph.node(use.node);
      sliced = sliced && reader.op == OpKind::kSlice;
      read += graph.type(reader.first_result).elems();
    }
    parts[v.index()] = sliced && read > 0 && read <= graph.type(v).elems();
  }
  for (ValueId v : graph.outputs()) parts[v.index()] = false;
  return parts;
}

}  // namespace

Graph move_parts(const Graph& graph) {
  const std::vector<bool> parts = find_parts(graph);
  if (std::find(parts.begin(), parts.end(), true) == parts.end()) return graph;
  Graph to;
  ValueMap map(graph);
  copy_inputs(graph, to, map);
  const std::vector<RegionId> regions = import_regions(graph, to, RegionId());
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kSlice || !parts[node.operands[0].index()]) {
      copy_node(graph, node, to, map, regions);
      continue;
    }
    Node slice = node;
    slice.region = node.region.valid() ? regions[node.region.index()] : RegionId();
    slice.operands = {map[graph.def(node.operands[0]).operands[0]]};
    Node put = graph.def(node.operands[0]);
    put.region = slice.region;
    put.backward = slice.backward;
    const ArrayType here = graph.type(node.first_result);
    ArrayType there = here;
    there.kind = to.type(slice.operands[0]).kind;
    put.operands = {to.node(to.add_node(std::move(slice), {&there, 1})).result()};
    map.set(node.first_result, to.node(to.add_node(std::move(put), {&here, 1})).result());
  }
  to.set_outputs(map.images(graph.outputs()));
  return remove_dead_code(to);
}

}  // namespace stow
