#include "stowage/passes/expose.h"

#include <set>

#include "stowage/passes/policy_subjects.h"

namespace stow {
namespace {

Shape stacked(const Shape& slice, int64_t length) {
  Dims dims = slice.dims();
  dims.insert(dims.begin(), length);
  return Shape(std::move(dims));
}

// Values of the nodes outside any region that hold the same data, and the names these bear.
class Twins {
 public:
  explicit Twins(const Graph& graph) : root_(graph.n_values()) {
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = ValueId(v);
    for (const Node& node : graph.nodes()) {
      if (node.region.valid()) continue;
      if (node.op == OpKind::kReshape || node.op == OpKind::kTranspose ||
          node.op == OpKind::kReverse || op_class(node.op) == OpClass::kIdentity)
        for (int i = 0; i < node.n_results; ++i)
          root_[node.result(i).index()] = root_[node.operands[static_cast<size_t>(i)].index()];
      if (node.op == OpKind::kName)
        names_[root_[node.result().index()]].push_back(node.as<NameParams>().name);
    }
  }
  ValueId root(ValueId v) const { return root_[v.index()]; }
  std::span<const std::string_view> names(ValueId v) const {
    const auto found = names_.find(root(v));
    return found == names_.end() ? std::span<const std::string_view>() : found->second;
  }

 private:
  std::vector<ValueId> root_;
  std::map<ValueId, std::vector<std::string_view>> names_;
};

struct Widened {
  ScanParams params;
  GraphPtr body;
  std::vector<ArrayType> more;  // types of the further results
  ExposedScan exposed;
};
std::optional<Widened> widen(const Node& scan, const Policy& policy);

// Appends `scan`, which is a node of `from`, as it was widened.
NodeId add_widened(const Graph& from, const Node& scan, const Widened& widened, Graph& to,
                   ValueMap& map, std::span<const RegionId> regions) {
  Node copy = scan;
  copy.operands = map.images(scan.operands);
  copy.params = widened.params;
  copy.graphs = {widened.body};
  copy.region = scan.region.valid() ? regions[scan.region.index()] : RegionId();
  const int plain = scan.n_results - scan.as<ScanParams>().n_residuals;
  const auto more = static_cast<int>(widened.more.size());
  std::vector<ArrayType> types;
  for (int i = 0; i < scan.n_results; ++i) {
    if (i == plain) types.insert(types.end(), widened.more.begin(), widened.more.end());
    types.push_back(from.type(scan.result(i)));
  }
  const NodeId id = to.add_node(std::move(copy), types);
  for (int i = 0; i < scan.n_results; ++i)
    map.set(scan.result(i), to.node(id).result(i < plain ? i : i + more));
  return id;
}

bool may_be_exposed(const Node& node) {
  if (node.region.valid() || node.backward || !node.graphs.empty()) return false;
  switch (op_class(node.op)) {
    case OpClass::kLeaf:
    case OpClass::kView:
    case OpClass::kStructure:
      return false;
    case OpClass::kIdentity:
      return node.op == OpKind::kName;
    case OpClass::kElementwise:
    case OpClass::kReduce:
    case OpClass::kOther:
      return node.op != OpKind::kDevicePut;
  }
  return false;
}

std::optional<Widened> widen(const Node& scan, const Policy& policy) {
  const auto& p = scan.as<ScanParams>();
  if (p.n_residuals == 0) return std::nullopt;
  const Graph& from = *scan.graphs[0];
  const Twins twins(from);
  const PolicySubjects subjects(from);
  Graph body;
  ValueMap map(from);
  copy_inputs(from, body, map);
  const std::vector<RegionId> regions = import_regions(from, body, RegionId());
  Widened widened;
  std::vector<std::pair<ValueId, PolicyAnswer>> found;  // of `body`
  std::set<ValueId> taken;                              // twins of theirs
  for (const Node& node : from.nodes()) {
    if (node.op == OpKind::kScan && !node.region.valid() && !node.backward)
      if (const std::optional<Widened> inner = widen(node, policy)) {
        const NodeId id = add_widened(from, node, *inner, body, map, regions);
        for (const ExposedValue& value : inner->exposed.values)
          found.emplace_back(body.node(id).result(value.result), value.answer);
        widened.exposed.nested.emplace(id.index(), inner->exposed);
        continue;
      }
    copy_node(from, node, body, map, regions);
    if (!may_be_exposed(node)) continue;
    const std::string_view name =
        node.op == OpKind::kName ? std::string_view(node.as<NameParams>().name) : "";
    for (int i = 0; i < node.n_results; ++i) {
      const ValueId v = node.result(i);
      if (from.type(v).kind != MemoryKind::kDevice) continue;
      if (subjects.is_part(v)) continue;
      const Node& subject = subjects.of(node);
      const PolicyAnswer answer = policy.decide({subject.op, &subject, name, twins.names(v)});
      if (answer.mark == Mark::kOffload && answer.destination == MemoryKind::kDevice)
        trace_error("[checkpoint] a policy offloads a value of {} at {} to the device, where it is",
                    op_name(node.op), to_string(node.provenance));
      if ((answer.mark == Mark::kKeep || answer.mark == Mark::kOffload) &&
          taken.insert(twins.root(v)).second)
        found.emplace_back(map[v], answer);
    }
  }
  if (found.empty()) return std::nullopt;
  const auto plain = static_cast<size_t>(scan.n_results - p.n_residuals);
  std::vector<ValueId> outputs = map.images(from.outputs()), more;
  for (const auto& [value, answer] : found) {
    widened.exposed.values.push_back({static_cast<int>(plain + more.size()), value, answer});
    ArrayType type = body.type(value);
    type.shape = stacked(type.shape, p.length);
    widened.more.push_back(std::move(type));
    more.push_back(value);
  }
  outputs.insert(outputs.begin() + static_cast<std::ptrdiff_t>(plain), more.begin(), more.end());
  body.set_outputs(std::move(outputs));
  widened.params = p;
  Dims& axes = widened.params.out_axes;
  axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(plain) - p.n_carries, more.size(), 0);
  widened.body = std::make_shared<const Graph>(std::move(body));
  return widened;
}

}  // namespace

ExposedGraph expose_scans(const Graph& graph,
                          const std::function<const Policy*(const Node&)>& policy_of) {
  ExposedGraph result;
  ValueMap map(graph);
  copy_inputs(graph, result.graph, map);
  const std::vector<RegionId> regions = import_regions(graph, result.graph, RegionId());
  for (const Node& node : graph.nodes()) {
    const Policy* policy = node.op == OpKind::kScan ? policy_of(node) : nullptr;
    if (policy)
      if (const std::optional<Widened> widened = widen(node, *policy)) {
        const NodeId id = add_widened(graph, node, *widened, result.graph, map, regions);
        result.scans.emplace(id.index(), widened->exposed);
        continue;
      }
    copy_node(graph, node, result.graph, map, regions);
  }
  result.graph.set_outputs(map.images(graph.outputs()));
  for (size_t v = 0; v < graph.n_values(); ++v) result.images.push_back(map[ValueId(v)]);
  return result;
}

Node given_exposed(const Node& scan, const ExposedScan& exposed,
                   const std::vector<std::optional<ArrayType>>& given) {
  const Graph& from = *scan.graphs[0];
  Node result = scan;
  auto& p = std::get<ScanParams>(result.params);
  Graph body;
  ValueMap map(from);
  copy_inputs(from, body, map);
  const std::vector<RegionId> regions = import_regions(from, body, RegionId());
  // By exposed value, its slice in its own memory, and that slice on the device.
  std::map<ValueId, std::pair<ValueId, ValueId>> slices;
  for (size_t k = 0; k < given.size(); ++k) {
    if (!given[k]) continue;
    p.in_axes.push_back(0);
    ArrayType type = from.type(exposed.values[k].inner);
    type.kind = given[k]->kind;
    const ValueId waits = body.add_input(type, fmt::format("kept/{}", k));
    ValueId here = waits;
    if (type.kind != MemoryKind::kDevice) {
      type.kind = MemoryKind::kDevice;
      Node put{.op = OpKind::kDevicePut,
               .params = DevicePutParams{MemoryKind::kDevice},
               .operands = {waits}};
      put.provenance = made_by(Pass::kResiduals, scan.provenance);
      here = body.node(body.add_node(std::move(put), {&type, 1})).result();
    }
    slices.emplace(exposed.values[k].inner, std::pair(waits, here));
  }
  for (size_t n = 0; n < from.n_nodes(); ++n) {
    const Node& node = from.nodes()[n];
    const auto nested = exposed.nested.find(n);
    if (nested == exposed.nested.end()) {
      copy_node(from, node, body, map, regions);
    } else {
      std::vector<std::optional<ArrayType>> inner;
      std::vector<ValueId> more;
      for (const ExposedValue& value : nested->second.values) {
        const auto found = slices.find(node.result(value.result));
        inner.emplace_back();
        if (found == slices.end()) continue;
        inner.back() = body.type(found->second.first);
        more.push_back(found->second.first);
      }
      Node copy = given_exposed(node, nested->second, inner);
      copy.operands = map.images(node.operands);
      copy.operands.insert(copy.operands.end(), more.begin(), more.end());
      std::vector<ArrayType> types;
      for (int i = 0; i < node.n_results; ++i) types.push_back(from.type(node.result(i)));
      const NodeId id = body.add_node(std::move(copy), types);
      for (int i = 0; i < node.n_results; ++i) map.set(node.result(i), body.node(id).result(i));
    }
    for (int i = 0; i < node.n_results; ++i)
      if (const auto found = slices.find(node.result(i)); found != slices.end())
        map.set(node.result(i), found->second.second);
  }
  body.set_outputs(map.images(from.outputs()));
  result.graphs = {std::make_shared<const Graph>(std::move(body))};
  return result;
}

}  // namespace stow
