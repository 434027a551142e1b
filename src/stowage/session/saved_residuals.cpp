#include "stowage/session/saved_residuals.h"

#include "stowage/autodiff/flatten.h"
#include "stowage/session/fixed_passes.h"

namespace stow {
namespace {

// Returns the Name node that names a value: its maker, or one of its readers.
const Node* naming(const Graph& graph, ValueId v) {
  if (!graph.is_input(v) && graph.def(v).op == OpKind::kName) return &graph.def(v);
  for (const Node& node : graph.nodes())
    if (node.op == OpKind::kName && node.operands[0] == v && !node.backward) return &node;
  return nullptr;
}

// Describes what made `v`, a value computed in `graph` or in the body of one of its scans.
void describe(const Graph& graph, ValueId v, SavedResidual& residual) {
  if (const Node* name = naming(graph, v)) {
    residual.source = SavedResidual::Source::kNamed;
    residual.name = name->as<NameParams>().name;
    residual.place = name->provenance;
    return;
  }
  if (graph.is_input(v)) {  // of a body: a carry
    residual.source = SavedResidual::Source::kCarry;
    residual.name = graph.input_names()[static_cast<size_t>(graph.value(v).index)];
    return;
  }
  const Node& node = graph.def(v);
  const auto result = static_cast<size_t>(graph.value(v).index);
  if (node.op == OpKind::kScan && result >= static_cast<size_t>(node.as<ScanParams>().n_carries)) {
    residual.stacked = true;
    describe(*node.graphs[0], node.graphs[0]->outputs()[result], residual);
    if (!residual.place) residual.place = node.provenance;
    return;
  }
  residual.name = op_name(node.op);
  residual.place = node.provenance;
}

}  // namespace

std::string to_string(const SavedResidual& r) {
  std::string text = to_string(r.type);
  switch (r.source) {
    case SavedResidual::Source::kArgument:
      return fmt::format("{} from the argument{}", text, r.name.empty() ? "" : " '" + r.name + "'");
    case SavedResidual::Source::kCaptured:
      return text + " from a captured array";
    case SavedResidual::Source::kNamed:
      text += fmt::format(" named '{}'", r.name);
      break;
    case SavedResidual::Source::kCarry:
      text += r.name.empty() ? " carry" : fmt::format(" carry '{}'", r.name);
      break;
    case SavedResidual::Source::kOutput:
      text += fmt::format(" output of {}", r.name);
      break;
  }
  const std::string place = source_path(r.place);
  if (!place.empty()) text += " at " + place;
  return r.stacked ? text + ", stacked by scan" : text;
}

std::vector<SavedResidual> saved_residuals(const Graph& joint, size_t n_arguments,
                                           size_t n_cotangents) {
  Graph g = flatten_all(joint);
  PassReport report;
  for (const FixedPass& pass : fixed_passes().first(kNumResidualPasses))
    g = pass.run(g, nullptr, report);
  const size_t n_forward_inputs = g.inputs().size() - n_cotangents;
  std::vector<bool> read(g.n_values());
  for (const Node& node : g.nodes())
    if (node.backward)
      for (ValueId v : node.operands) read[v.index()] = true;
  std::vector<SavedResidual> residuals;
  for (size_t i = 0; i < n_forward_inputs; ++i) {
    const ValueId v = g.inputs()[i];
    if (!read[v.index()]) continue;
    const bool argument = i < n_arguments;
    residuals.push_back(
        {g.type(v), argument ? SavedResidual::Source::kArgument : SavedResidual::Source::kCaptured,
         g.input_names()[i], false, nullptr});
  }
  for (const Node& node : g.nodes()) {
    if (node.backward) continue;
    for (int i = 0; i < node.n_results; ++i) {
      if (!read[node.result(i).index()]) continue;
      SavedResidual residual;
      residual.type = g.type(node.result(i));
      describe(g, node.result(i), residual);
      residuals.push_back(std::move(residual));
    }
  }
  return residuals;
}

}  // namespace stow
