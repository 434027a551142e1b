#include "stowage/ir/graph.h"

#include <cstring>

namespace stow::ir {

std::string_view pass_name(Pass pass) {
  switch (pass) {
    case Pass::kTraced: return "traced";
    case Pass::kVjp: return "vjp";
    case Pass::kVmap: return "vmap";
    case Pass::kResiduals: return "residuals";
    case Pass::kUnroll: return "unroll";
    case Pass::kTiles: return "tiles";
    case Pass::kTransfers: return "transfers";
    case Pass::kLower: return "lower";
  }
  return "?";
}

std::string source_path(const ProvenancePtr& p) {
  if (!p) return {};
  if (p->location.line == 0) return p->scope;
  const char* slash = std::strrchr(p->location.file, '/');
  const std::string place =
      fmt::format("{}:{}", slash ? slash + 1 : p->location.file, p->location.line);
  return p->scope.empty() ? place : fmt::format("{} ({})", p->scope, place);
}

std::string to_string(const ProvenancePtr& p) {
  const std::string path = source_path(p);
  if (pass_of(p) == Pass::kTraced) return path;
  return fmt::format("{}{}[{}]", path, path.empty() ? "" : " ", pass_name(p->pass));
}

ProvenancePtr made_by(Pass pass, const ProvenancePtr& provenance) {
  if (pass_of(provenance) == pass) return provenance;
  Provenance made = provenance ? *provenance : Provenance{};
  made.pass = pass;
  // The name of a file may live in the provenance that it was parsed into.
  struct Owner {
    Provenance made;
    ProvenancePtr from;
  };
  const auto owner = std::make_shared<const Owner>(Owner{std::move(made), provenance});
  return ProvenancePtr(owner, &owner->made);
}

ValueId Graph::add_input(const ArrayType& type, std::string name) {
  const ValueId id(values_.size());
  values_.push_back({type, NodeId(), static_cast<int>(inputs_.size())});
  inputs_.push_back(id);
  input_names_.push_back(std::move(name));
  return id;
}

NodeId Graph::add_node(Node node, std::span<const ArrayType> types) {
  const NodeId id(nodes_.size());
  node.first_result = ValueId(values_.size());
  node.n_results = static_cast<int>(types.size());
  for (ValueId operand : node.operands)
    STOW_CHECK(operand.index() < values_.size(), "operand %{} of {} is not defined yet",
               operand.value, op_name(node.op));
  for (size_t i = 0; i < types.size(); ++i)
    values_.push_back({types[i], id, static_cast<int>(i)});
  nodes_.push_back(std::move(node));
  return id;
}

RegionId Graph::add_region(Region region) {
  regions_.push_back(std::move(region));
  return RegionId(regions_.size() - 1);
}

void copy_input(const Graph& from, size_t i, Graph& to, ValueMap& map) {
  const ValueId v = from.inputs()[i];
  map.set(v, to.add_input(from.type(v), from.input_names()[i]));
}

void copy_inputs(const Graph& from, Graph& to, ValueMap& map) {
  for (size_t i = 0; i < from.inputs().size(); ++i) copy_input(from, i, to, map);
}

NodeId copy_node(const Graph& from, const Node& node, Graph& to, ValueMap& map,
                 std::span<const RegionId> regions) {
  Node copy = node;
  for (ValueId& operand : copy.operands) operand = map[operand];
  copy.region = node.region.valid() && !regions.empty() ? regions[node.region.index()] : RegionId();
  std::vector<ArrayType> types;
  for (int i = 0; i < node.n_results; ++i) types.push_back(from.type(node.result(i)));
  const NodeId id = to.add_node(std::move(copy), types);
  for (int i = 0; i < node.n_results; ++i) map.set(node.result(i), to.node(id).result(i));
  return id;
}

std::vector<RegionId> import_regions(const Graph& from, Graph& to, RegionId parent) {
  std::vector<RegionId> ids;
  for (const Region& region : from.regions()) {
    Region copy = region;
    copy.parent = region.parent.valid() ? ids[region.parent.index()] : parent;
    ids.push_back(to.add_region(std::move(copy)));
  }
  return ids;
}

}  // namespace stow::ir
