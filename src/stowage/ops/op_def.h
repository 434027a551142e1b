// OpDef: the meaning of an op in one place: types, gradient, batching, sharding, cost.
// Not its kernels; each backend has its own.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/val.h"

namespace stow {

/// A required field of a definition: leaving it out does not compile.
template <typename F>
struct Required {
  Required() = delete;
  constexpr Required(F f) : function(f) {}  // NOLINT: a definition lists plain functions
  F function;
};

/// The input of a type rule.
struct InferContext {
  OpKind op;
  std::span<const ArrayType> operands;
  const Params& params;
  std::span<const GraphPtr> graphs;

  template <typename T>
  const T& as() const {
    return std::get<T>(params);
  }
  const ArrayType& operand(size_t i) const { return operands[i]; }
  /// Throws TraceError "[op] message".
  template <typename... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    throw TraceError(
        fmt::format("[{}] {}", op_name(op), fmt::format(format, std::forward<Args>(args)...)));
  }
};

/// The input of a gradient rule: the node's operands and results, as values of the graph that
/// receives the gradient, and the cotangents of its results.
struct VjpContext {
  const Node& node;
  std::vector<Val> operands;
  std::vector<Val> results;
  std::vector<std::optional<Val>> cotangents;  ///< By result; none if it is zero.
  std::vector<bool> needed;                    ///< By operand: true if its cotangent is needed.

  const Val& ct() const { return *cotangents[0]; }  ///< Cotangent of the first result.
};
/// The cotangents by operand; none if it is zero, not needed or the operand is not differentiable.
using Cotangents = std::vector<std::optional<Val>>;

/// The batch axis of a value that is the same for all examples.
inline constexpr int64_t kUnbatched = -1;

/// The input of a batching rule: the node of one example, and its operands over the batch as values
/// of the new graph. The builder gives new nodes the provenance and flags of the node.
struct BatchContext {
  const Node& node;
  GraphBuilder& builder;
  int64_t size;  ///< Number of examples in the batch, at least 1.
  std::vector<Val> operands;
  std::vector<int64_t> axes;  ///< By operand, its batch axis or kUnbatched; at least one has one.

  bool batched(size_t i) const { return axes[i] != kUnbatched; }
  /// The batch axis of the first operand that has one.
  int64_t first_axis() const {
    for (int64_t axis : axes)
      if (axis != kUnbatched) return axis;
    return kUnbatched;
  }
};
struct Batched {
  std::vector<Val> values;    ///< By result of the node.
  std::vector<int64_t> axes;  ///< By result, its batch axis or kUnbatched.
};

/// Einsum-like sharding rule: each axis has a letter. Axes with one letter shard together; a letter
/// that no result has is reduced over by its kind; kUnshardable keeps an axis whole. Axes of
/// different extents may share a letter (reshape, grouped heads). The number of parts of a letter
/// must divide the extent of every axis that has it.
struct ShardingFactors {
  static constexpr int kUnshardable = -1;
  std::vector<std::vector<int>> operands, results;
  std::vector<ReduceKind> kinds = {};  ///< By letter; letters beyond the last are sums.

  ReduceKind kind(int letter) const {
    const auto i = static_cast<size_t>(letter);
    return i < kinds.size() ? kinds[i] : ReduceKind::kSum;
  }
};

/// The input of a localisation rule: a node of the whole program, the shardings that follow from
/// the mesh axes of its letters, and its operands at one position as values of the new local graph.
struct LocalContext {
  const Node& node;
  GraphBuilder& builder;
  const MeshShape& mesh;
  std::span<const ArrayType> operand_types, result_types;  ///< Types of the whole arrays.
  /// The shardings that operands have and results must get. Results are partial over the mesh axes
  /// of letters that only operands have.
  std::span<const AxisSharding> operand_shardings, result_shardings;
  std::vector<Val> operands;
  /// Returns the index of the position in its group over mesh axes, i32[].
  std::function<Val(const MeshAxes&)> index;

  const std::vector<MeshAxes>& operand_axes(size_t i) const { return operand_shardings[i].axes; }
  const std::vector<MeshAxes>& result_axes(size_t i = 0) const {
    return result_shardings[i].axes;
  }
  /// The shape of the part of result i.
  Shape local_result(size_t i = 0) const {
    return local_type(result_types[i], result_shardings[i], mesh).shape;
  }
};

/// Work of one evaluation of an op.
struct Cost {
  double flops = 0;  ///< A multiply-add is two.
  double bytes = 0;  ///< Bytes read and written, each operand and result once.
};

struct OpDef {
  OpKind op;
  /// Result types. Throws TraceError naming the op and the types.
  Required<std::vector<ArrayType> (*)(const InferContext&)> infer;
  Required<Cotangents (*)(const VjpContext&)> vjp;
  /// Builds the op over a batch: example i of the results is the op of example i of the operands.
  Required<Batched (*)(const BatchContext&)> batch;
  Required<ShardingFactors (*)(const InferContext&, std::span<const ArrayType> results)> shard;
  /// Builds the op at one position: parts of the results from parts of the operands, for any mesh
  /// axes that the letters of `shard` allow. Never called for structure ops and the borders of
  /// shard_map, which the partitioner rewrites itself.
  Required<std::vector<Val> (*)(const LocalContext&)> local;
  Required<Cost (*)(const InferContext&, std::span<const ArrayType> results)> cost;
};

const OpDef& op_def(OpKind op);

/// Returns the result types of an op. Throws TraceError if operands, parameters or graphs do not
/// fit.
std::vector<ArrayType> infer_types(const InferContext& context);

/// The work of all nodes of a graph, with loops multiplied out.
Cost graph_cost(const Graph& graph);

}  // namespace stow
