// Graph: a list of pure, typed nodes in topological order, with inputs and outputs.
// Not a schedule: the order says what depends on what, not when anything runs.
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

/// The maker of a node, or of a kernel that stands for none.
enum class Pass : uint8_t {
  kTraced,     ///< The user's function, as it was traced.
  kVjp,        ///< Reverse mode.
  kVmap,       ///< The rewriting of a function over a batch.
  kResiduals,  ///< A value computed again, or moved to wait elsewhere.
  kUnroll,     ///< The nodes that join the iterations of a loop that is written out.
  kTiles,      ///< The cutting of work over host memory into tiles.
  kTransfers,  ///< The scheduling of moves.
  kLower       ///< A copy that the layout needs.
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
/// "layers/mlp/up (model.cpp:41)"; what is not known is left out.
std::string source_path(const ProvenancePtr& provenance);
/// The same and, in brackets, the pass where that is not the trace: "mlp/up (model.cpp:41) [vjp]".
std::string to_string(const ProvenancePtr& provenance);
/// The pass; kTraced of nothing.
inline Pass pass_of(const ProvenancePtr& p) { return p ? p->pass : Pass::kTraced; }
/// The same place, made by a pass.
ProvenancePtr made_by(Pass pass, const ProvenancePtr& provenance);

/// A checkpointed region of a flat graph: the nodes that came from one checkpoint node.
struct Region {
  RegionId parent;  ///< Invalid for an outermost region.
  PolicyPtr policy;
  bool prevent_cse = true;
  ProvenancePtr made = {};  ///< The call of checkpoint, where known.
};

class Graph;
using GraphPtr = std::shared_ptr<const Graph>;

struct Node {
  OpKind op = OpKind::kConstant;
  Params params;
  std::vector<ValueId> operands;
  ValueId first_result;
  int n_results = 1;
  std::vector<GraphPtr> graphs;  ///< Nested graphs; they capture nothing.
  ProvenancePtr provenance;
  RegionId region;        ///< Index in the owning graph's table; invalid outside any region.
  bool backward = false;  ///< Made by reverse mode for cotangents.
  /// True for a node in a region if the gradient of something outside reads one of its results:
  /// these exist whether or not the region is recomputed. Residuals of scans and conds do not
  /// count.
  bool leaves = false;

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

/// Built by appending (GraphBuilder); const once shared.
class Graph {
 public:
  size_t n_nodes() const { return nodes_.size(); }
  size_t n_values() const { return values_.size(); }
  const Node& node(NodeId id) const { return nodes_[id.index()]; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(ValueId id) const { return values_[id.index()]; }
  const ArrayType& type(ValueId id) const { return values_[id.index()].type; }
  bool is_input(ValueId id) const { return !value(id).node.valid(); }
  /// The node that makes a value, which must not be an input.
  const Node& def(ValueId id) const { return node(value(id).node); }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  const std::vector<Region>& regions() const { return regions_; }

  ValueId add_input(const ArrayType& type, std::string name = {});
  /// Appends a node whose types were inferred; returns its id.
  NodeId add_node(Node node, std::span<const ArrayType> types);
  void set_outputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }
  RegionId add_region(Region region);
  /// For the passes that only change marks and flags.
  Node& mutable_node(NodeId id) { return nodes_[id.index()]; }
  Region& mutable_region(RegionId id) { return regions_[id.index()]; }

 private:
  std::vector<Node> nodes_;
  std::deque<Value> values_;  // so that a type that was asked for outlives appending
  std::vector<ValueId> inputs_, outputs_;
  std::vector<std::string> input_names_;
  std::vector<Region> regions_;
};

/// Maps values of one graph to values of another while nodes are copied.
class ValueMap {
 public:
  explicit ValueMap(const Graph& from) : to_(from.n_values()) {}
  void set(ValueId from, ValueId to) { to_[from.index()] = to; }
  /// True if the value has an image.
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

/// Gives `to` an input like number `i` of `from`, name and all, and enters it as its image.
void copy_input(const Graph& from, size_t i, Graph& to, ValueMap& map);
/// The same for every input, in order.
void copy_inputs(const Graph& from, Graph& to, ValueMap& map);

/// Copies one node into `to`, its operands mapped, its region translated through `regions` (one an
/// entry of the source's table; empty drops regions), and enters the images of its results.
NodeId copy_node(const Graph& from, const Node& node, Graph& to, ValueMap& map,
                 std::span<const RegionId> regions);

/// Copies the region table of `from` into `to`, outermost regions getting `parent`.
std::vector<RegionId> import_regions(const Graph& from, Graph& to, RegionId parent);

}  // namespace stow::ir
