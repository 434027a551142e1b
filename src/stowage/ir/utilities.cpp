#include "stowage/ir/utilities.h"

#include <bit>
#include <concepts>

#include "stowage/ir/fields.h"

namespace stow {
namespace {

template <typename T>
bool same_field(const T& a, const T& b) {
  return a == b;
}
bool same_field(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

template <typename Struct>
bool same_fields(const Struct& a, const Struct& b) {
  bool same = true;
  std::apply(
      [&](const auto&... field) {
        ((same = same && same_field(a.*field.member, b.*field.member)), ...);
      },
      FieldsOf<Struct>::list);
  return same;
}

bool same_params(const Params& a, const Params& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) { return same_fields(x, std::get<std::remove_cvref_t<decltype(x)>>(b)); },
      a);
}

// Mixes what it is fed; the finaliser of splitmix64.
class Hasher {
 public:
  void add(uint64_t value) {
    uint64_t h = (state_ += 0x9e3779b97f4a7c15u) ^ value;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    state_ = h ^ (h >> 31);
  }
  void field(std::integral auto value) { add(static_cast<uint64_t>(value)); }
  void field(float value) { add(std::bit_cast<uint32_t>(value)); }
  void field(DType value) { add(static_cast<uint64_t>(value)); }
  void field(MemoryKind value) { add(static_cast<uint64_t>(value)); }
  void field(RegionId value) { add(value.value); }
  void field(const PolicyPtr& value) { add(std::hash<PolicyPtr>()(value)); }
  void field(const std::string& value) { add(std::hash<std::string>()(value)); }
  void field(const std::vector<std::byte>& value) {
    add(std::hash<std::string_view>()({reinterpret_cast<const char*>(value.data()), value.size()}));
  }
  void field(const Dims& value) {
    add(value.size());
    for (int64_t v : value) field(v);
  }
  void field(const Shape& value) { field(value.dims()); }
  void field(const ArrayType& value) {
    field(value.dtype);
    field(value.shape);
    add(static_cast<uint64_t>(value.kind));
  }
  void field(ReduceKind value) { add(static_cast<uint64_t>(value)); }
  void field(const MeshAxes& value) {
    add(value.size());
    for (int axis : value) field(axis);
  }
  void field(const MeshShape& value) {
    add(value.names.size());
    for (const std::string& name : value.names) field(name);
    field(value.extents);
  }
  void field(const AxisSharding& value) {
    add(value.axes.size());
    for (const MeshAxes& list : value.axes) field(list);
    field(value.partial);
    field(value.kind);
  }
  void values(std::span<const ValueId> ids) {
    add(ids.size());
    for (ValueId id : ids) add(id.value);
  }
  template <typename Struct>
  void fields(const Struct& object) {
    visit_fields(object, [this](std::string_view, const auto& value) { this->field(value); });
  }
  size_t result() const { return state_; }

 private:
  uint64_t state_ = 0;
};

}  // namespace

bool same_operation(const Node& a, const Node& b) {
  if (a.op != b.op || a.n_results != b.n_results || a.graphs.size() != b.graphs.size() ||
      !same_params(a.params, b.params))
    return false;
  for (size_t i = 0; i < a.graphs.size(); ++i)
    if (!equal(*a.graphs[i], *b.graphs[i])) return false;
  return true;
}

RegionId outermost_region(const Graph& graph, RegionId region) {
  while (region.valid() && graph.regions()[region.index()].parent.valid())
    region = graph.regions()[region.index()].parent;
  return region;
}

bool equal(const Graph& a, const Graph& b) {
  if (&a == &b) return true;
  if (a.n_nodes() != b.n_nodes() || a.n_values() != b.n_values() || a.inputs() != b.inputs() ||
      a.outputs() != b.outputs() || a.regions().size() != b.regions().size())
    return false;
  for (size_t i = 0; i < a.regions().size(); ++i)
    if (!same_fields(a.regions()[i], b.regions()[i])) return false;
  for (size_t i = 0; i < a.n_values(); ++i)
    if (!(a.type(ValueId(i)) == b.type(ValueId(i)))) return false;
  for (size_t i = 0; i < a.n_nodes(); ++i) {
    const Node &x = a.nodes()[i], &y = b.nodes()[i];
    if (x.operands != y.operands || x.first_result != y.first_result || x.region != y.region ||
        x.backward != y.backward || x.escapes_region != y.escapes_region || !same_operation(x, y))
      return false;
  }
  return true;
}

size_t operation_hash(const Node& node) {
  Hasher h;
  h.add(static_cast<uint64_t>(node.op));
  h.add(static_cast<uint64_t>(node.n_results));
  h.add(node.params.index());
  std::visit([&](const auto& params) { h.fields(params); }, node.params);
  for (const GraphPtr& nested : node.graphs) h.add(structural_hash(*nested));
  return h.result();
}

size_t structural_hash(const Graph& graph) {
  Hasher h;
  h.values(graph.inputs());
  for (ValueId input : graph.inputs()) h.field(graph.type(input));
  for (const Region& region : graph.regions()) h.fields(region);
  for (const Node& node : graph.nodes()) {
    h.add(operation_hash(node));
    h.values(node.operands);
    h.add(node.region.value);
    h.add(node.backward);
    h.add(node.escapes_region);
    for (int i = 0; i < node.n_results; ++i) h.field(graph.type(node.result(i)));
  }
  h.values(graph.outputs());
  return h.result();
}

int64_t count_ops(const Graph& graph, OpKind op, bool nested) {
  int64_t n = 0;
  for (const Node& node : graph.nodes()) {
    n += node.op == op;
    if (nested)
      for (const GraphPtr& inner : node.graphs) n += count_ops(*inner, op, true);
  }
  return n;
}

Users::Users(const Graph& graph) : start_(graph.n_values() + 1) {
  for (const Node& node : graph.nodes())
    for (ValueId operand : node.operands) ++start_[operand.index() + 1];
  for (size_t i = 1; i < start_.size(); ++i) start_[i] += start_[i - 1];
  uses_.resize(start_.back());
  std::vector<uint32_t> next(start_.begin(), start_.end() - 1);
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    const auto& operands = graph.nodes()[n].operands;
    for (size_t i = 0; i < operands.size(); ++i)
      uses_[next[operands[i].index()]++] = {NodeId(n), static_cast<int>(i)};
  }
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.n_values());
  for (const Node& node : graph.nodes())
    for (ValueId v : node.operands) ++uses[v.index()];
  for (ValueId v : graph.outputs()) ++uses[v.index()];
  return uses;
}

}  // namespace stow
