// Graph: a list of pure, typed nodes in topological order, with inputs and outputs.
// Not a schedule: the order respects dependences and does not say when a node runs.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/base/strong_id.h"
#include "stowage/ir/params.h"

namespace stow {

/// The place in the source where a user wrote an operation.
struct SourceLocation {
  const char* file = "";
  int line = 0;
};

}  // namespace stow

namespace stow::ir {

using ValueId = StrongId<struct ValueTag>;
using NodeId = StrongId<struct NodeTag>;
using RegionId = StrongId<struct RegionTag>;

/// The pass that made a node, or a kernel that stands for no node.
enum class Pass : uint8_t {
  kTraced,     ///< Tracing of the user's function.
  kVjp,        ///< Reverse mode.
  kVmap,       ///< The rewriting of a function over a batch.
  kResiduals,  ///< passes/residuals: recomputes a value, or offloads it and brings it back.
  kUnroll,     ///< passes/unroll: joins the iterations of a scan that is written out.
  kTiles,      ///< passes/tiles: cuts work over host memory into tiles.
  kTransfers,  ///< passes/transfers: schedules moves.
  kLower       ///< passes/lower: a copy that the layout needs.
};
inline constexpr int kNumPasses = 8;
/// "traced", "vjp", …
std::string_view pass_name(Pass pass);

/// The named scopes around an operation ("layers/mlp/up"), its place in the user's source, and the
/// pass that made the node.
struct Provenance {
  std::string scope;
  SourceLocation location;
  Pass pass = Pass::kTraced;
};
using ProvenancePtr = std::shared_ptr<const Provenance>;
/// "layers/mlp/up (model.cpp:41)"; unknown parts are left out.
std::string source_path(const ProvenancePtr& provenance);
/// source_path() and, in brackets, the pass unless it is kTraced: "mlp/up (model.cpp:41) [vjp]".
std::string to_string(const ProvenancePtr& provenance);
/// Returns the pass of a provenance; kTraced if it is null.
inline Pass pass_of(const ProvenancePtr& p) { return p ? p->pass : Pass::kTraced; }
/// Returns a provenance with the scope and location of `provenance`, which may be null, and `pass`.
ProvenancePtr made_by(Pass pass, const ProvenancePtr& provenance);

/// A checkpointed region of a flat graph: the nodes that came from one checkpoint node.
struct Region {
  RegionId parent;  ///< Invalid for an outermost region.
  PolicyPtr policy;
  bool prevent_cse = true;
  ProvenancePtr made = {};  ///< The call of checkpoint, if known.
};

class Graph;
using GraphPtr = std::shared_ptr<const Graph>;

struct Node {
  OpKind op = OpKind::kConstant;
  Params params;
  std::vector<ValueId> operands;
  ValueId first_result;
  int n_results = 1;
  std::vector<GraphPtr> graphs;  ///< Nested graphs, which read only their own inputs.
  ProvenancePtr provenance;
  RegionId region;        ///< Index in the graph's table of regions; invalid outside any region.
  bool backward = false;  ///< True for the work of reverse mode on cotangents.
  /// True for a node in a region if the gradient of a node outside the region reads one of its
  /// results. The results then exist whether or not the region is recomputed. Residuals of scans
  /// and conds do not count as results here.
  bool escapes_region = false;

  ValueId result(int i = 0) const {
    return ValueId(first_result.index() + static_cast<size_t>(i));
  }
  template <typename T>
  const T& as() const {
    return std::get<T>(params);
  }
};

/// A value: an input (no node) or one result of a node.
struct Value {
  ArrayType type;
  NodeId node;    ///< Invalid for an input.
  int index = 0;  ///< Number of the input, or of the node's result.
};

/// Nodes are appended (by GraphBuilder) and never removed. Immutable once shared as a GraphPtr.
class Graph {
 public:
  size_t n_nodes() const { return nodes_.size(); }
  size_t n_values() const { return values_.size(); }
  const Node& node(NodeId id) const { return nodes_[id.index()]; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(ValueId id) const { return values_[id.index()]; }
  const ArrayType& type(ValueId id) const { return values_[id.index()].type; }
  bool is_input(ValueId id) const { return !value(id).node.valid(); }
  /// Returns the node that makes a value, which must not be an input.
  const Node& def(ValueId id) const { return node(value(id).node); }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  const std::vector<Region>& regions() const { return regions_; }

  ValueId add_input(const ArrayType& type, std::string name = {});
  /// Appends a node whose results have these types, which are not checked; returns its id.
  NodeId add_node(Node node, std::span<const ArrayType> types);
  void set_outputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }
  RegionId add_region(Region region);
  /// For passes that change a node in place, but neither its operands nor its results.
  Node& mutable_node(NodeId id) { return nodes_[id.index()]; }
  Region& mutable_region(RegionId id) { return regions_[id.index()]; }

 private:
  std::vector<Node> nodes_;
  std::deque<Value> values_;  // a deque: references from type() stay valid while nodes are appended
  std::vector<ValueId> inputs_, outputs_;
  std::vector<std::string> input_names_;
  std::vector<Region> regions_;
};

/// Maps values of one graph to values of another while nodes are copied.
class ValueMap {
 public:
  explicit ValueMap(const Graph& from) : to_(from.n_values()) {}
  void set(ValueId from, ValueId to) { to_[from.index()] = to; }
  /// True if the value is mapped.
  bool has(ValueId from) const { return to_[from.index()].valid(); }
  ValueId operator[](ValueId from) const {
    STOW_CHECK(has(from), "value %{} has no image", from.value);
    return to_[from.index()];
  }
  /// The images of several values, in order.
  std::vector<ValueId> images(std::span<const ValueId> from) const {
    std::vector<ValueId> to;
    for (ValueId v : from) to.push_back((*this)[v]);
    return to;
  }

 private:
  std::vector<ValueId> to_;
};

/// Adds to `to` an input with the type and name of input `i` of `from`, and maps one to the other.
void copy_input(const Graph& from, size_t i, Graph& to, ValueMap& map);
/// Calls copy_input() for every input, in order.
void copy_inputs(const Graph& from, Graph& to, ValueMap& map);

/// Appends a copy of `node` to `to`, with its operands mapped by `map`, and maps its results.
/// `regions` gives the region in `to` for each region of `from`; empty drops the node's region.
NodeId copy_node(const Graph& from, const Node& node, Graph& to, ValueMap& map,
                 std::span<const RegionId> regions);

/// Copies the regions of `from` into `to`; outermost regions get `parent`. Returns the new ids.
std::vector<RegionId> import_regions(const Graph& from, Graph& to, RegionId parent);

}  // namespace stow::ir
