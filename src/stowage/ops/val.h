// GraphBuilder and Val: a graph under construction and a value of it.
// Not the functions that build each op; those are in ops/build.h.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

class Val;

/// Appends nodes with inferred types to a graph, and holds the attributes that new nodes get.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(&graph) {}

  Graph& graph() { return *graph_; }
  /// Appends a node and returns its results. Throws TraceError with the provenance if inference
  /// fails.
  std::vector<Val> add(OpKind op, Params params, std::span<const Val> operands,
                       std::vector<GraphPtr> graphs = {});
  /// As add(), returning the first result.
  Val add1(OpKind op, Params params, std::initializer_list<Val> operands);

  ProvenancePtr provenance;
  Pass pass = Pass::kTraced;  ///< The pass of new nodes; kTraced: the pass of `provenance`.
  RegionId region;
  bool backward = false;

 private:
  ProvenancePtr stamp();

  Graph* graph_;
  ProvenancePtr stamped_from_, stamped_;
};

/// A value of a graph under construction.
class Val {
 public:
  Val(GraphBuilder& builder, ValueId id) : builder_(&builder), id_(id) {}
  GraphBuilder& builder() const { return *builder_; }
  ValueId id() const { return id_; }
  const ArrayType& type() const { return builder_->graph().type(id_); }
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return shape().rank(); }

 private:
  GraphBuilder* builder_;
  ValueId id_;
};

}  // namespace stow
