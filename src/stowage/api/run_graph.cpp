#include "stowage/api/run_graph.h"

namespace stow {
namespace {

size_t mix(size_t h, size_t v) { return (h ^ (v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2))); }

size_t hash_type(size_t h, const ArrayType& type) {
  h = mix(h, static_cast<size_t>(type.dtype));
  for (int64_t d : type.shape) h = mix(h, static_cast<size_t>(d));
  return mix(h, static_cast<size_t>(type.kind));
}

bool equal_nodes(const Graph& ga, const Node& a, const Graph& gb, const Node& b) {
  if (a.op != b.op || a.operands != b.operands || a.n_results != b.n_results ||
      a.region != b.region || a.backward != b.backward || a.graphs.size() != b.graphs.size() ||
      !(a.params == b.params))
    return false;
  for (int i = 0; i < a.n_results; ++i)
    if (!(ga.type(a.result(i)) == gb.type(b.result(i)))) return false;
  for (size_t i = 0; i < a.graphs.size(); ++i)
    if (a.graphs[i] != b.graphs[i] && !structural_equal(*a.graphs[i], *b.graphs[i])) return false;
  return true;
}

}  // namespace

size_t structural_hash(const Graph& graph) {
  size_t h = graph.n_values();
  for (ValueId id : graph.inputs()) h = mix(hash_type(h, graph.type(id)), id.value);
  for (const Node& node : graph.nodes()) {
    h = mix(h, static_cast<size_t>(node.op));
    for (ValueId id : node.operands) h = mix(h, id.value);
    for (int i = 0; i < node.n_results; ++i) h = hash_type(h, graph.type(node.result(i)));
    for (const GraphPtr& nested : node.graphs) h = mix(h, structural_hash(*nested));
  }
  for (ValueId id : graph.outputs()) h = mix(h, id.value);
  return h;
}

bool structural_equal(const Graph& a, const Graph& b) {
  if (a.n_values() != b.n_values() || a.n_nodes() != b.n_nodes() || a.inputs() != b.inputs() ||
      a.outputs() != b.outputs() || a.regions().size() != b.regions().size())
    return false;
  for (ValueId id : a.inputs())
    if (!(a.type(id) == b.type(id))) return false;
  for (size_t i = 0; i < a.regions().size(); ++i) {
    const Region &ra = a.regions()[i], &rb = b.regions()[i];
    if (ra.parent != rb.parent || ra.policy != rb.policy || ra.prevent_cse != rb.prevent_cse)
      return false;
  }
  for (size_t i = 0; i < a.n_nodes(); ++i)
    if (!equal_nodes(a, a.nodes()[i], b, b.nodes()[i])) return false;
  return true;
}

std::vector<DeviceBufferPtr> GraphRunner::run(Graph graph, const DevicePtr& device,
                                              std::span<const DeviceBufferPtr> arguments) {
  const size_t hash = structural_hash(graph);
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second.threads == device->threads() && structural_equal(it->second.graph, graph))
      return it->second.executable->run(*device, arguments);
  if (programs_.size() >= kMaxPrograms) programs_.clear();
  ++n_compiled_;
  ExecutablePtr executable = compile(graph, CompileOptions{}, device->threads());
  programs_.emplace(hash, Entry{std::move(graph), device->threads(), executable});
  return executable->run(*device, arguments);
}

}  // namespace stow
