// OpDef: the meaning of an op in one place: types, gradient, batching, sharding factors, cost.
// Not its kernels; each backend has a table of its own, generated from the same list.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/val.h"

namespace stow {

/// A field that a definition must fill in: leaving it out does not compile.
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

/// The input of a gradient rule: the node's operands and results as values of the graph that the
/// gradient is being written into, and the cotangents of its results.
struct VjpContext {
  const Node& node;
  std::vector<Val> operands;
  std::vector<Val> results;
  std::vector<std::optional<Val>> cotangents;  ///< None where it is zero.
  std::vector<bool> needed;                    ///< By operand: its cotangent is asked for.

  const Val& ct() const { return *cotangents[0]; }
};
/// One an operand; none where it is zero, not needed or the operand is not differentiable.
using Cotangents = std::vector<std::optional<Val>>;

/// The batch axis of a value that is the same for all examples.
inline constexpr int64_t kUnbatched = -1;

/// The input of a batching rule: the node of one example, and its operands over the batch as values
/// of the graph being written. The builder stamps new nodes as the node was.
struct BatchContext {
  const Node& node;
  GraphBuilder& builder;
  int64_t size;  ///< Number of examples in the batch, at least 1.
  std::vector<Val> operands;
  std::vector<int64_t> axes;  ///< The batch axis of each operand or kUnbatched; not all are that.

  bool batched(size_t i) const { return axes[i] != kUnbatched; }
  /// The batch axis of the first operand that has one.
  int64_t first_axis() const {
    for (int64_t axis : axes)
      if (axis != kUnbatched) return axis;
    return kUnbatched;
  }
};
struct Batched {
  std::vector<Val> values;    ///< One a result of the node.
  std::vector<int64_t> axes;  ///< The batch axis of each, or kUnbatched.
};

/// Einsum-like sharding rule: a letter an axis; axes of one letter shard together, a letter in no
/// result is reduced over by its kind, kUnshardable keeps an axis whole. A letter is cut only into a number of
/// parts that divides the extent of every axis that has it (reshape and grouped heads let axes of
/// different extents share one).
struct ShardingFactors {
  static constexpr int kUnshardable = -1;
  std::vector<std::vector<int>> operands, results;
  std::vector<ReduceKind> kinds = {};  ///< By letter; letters beyond the last are sums.

  ReduceKind kind(int letter) const {
    const auto i = static_cast<size_t>(letter);
    return i < kinds.size() ? kinds[i] : ReduceKind::kSum;
  }
};

/// The input of a localisation rule: a node of the whole program whose letters were given mesh
/// axes, and its operands at one position as values of the local graph being written.
struct LocalContext {
  const Node& node;
  GraphBuilder& builder;
  const MeshShape& mesh;
  std::span<const ArrayType> operand_types, result_types;  ///< Whole.
  /// How operands lie, and how results must. A result is partial over the axes of letters that it
  /// does not have, no result has, and the operands have.
  std::span<const AxisSharding> operand_shardings, result_shardings;
  std::vector<Val> operands;
  /// The index of the position in its group over mesh axes, i32[].
  std::function<Val(const MeshAxes&)> index;

  const std::vector<MeshAxes>& operand_axes(size_t i) const { return operand_shardings[i].axes; }
  const std::vector<MeshAxes>& result_axes(size_t i = 0) const {
    return result_shardings[i].axes;
  }
  Shape local_result(size_t i = 0) const {
    return local_type(result_types[i], result_shardings[i], mesh).shape;
  }
};

/// Work of one evaluation.
struct Cost {
  double flops = 0;  ///< A multiply-add is two.
  double bytes = 0;  ///< Read and written, each operand and result once.
};

struct OpDef {
  OpKind op;
  /// Result types. Throws TraceError naming the op and the types.
  Required<std::vector<ArrayType> (*)(const InferContext&)> infer;
  Required<Cotangents (*)(const VjpContext&)> vjp;
  /// The op over a batch: example i of the results is the op of example i of the operands.
  Required<Batched (*)(const BatchContext&)> batch;
  Required<ShardingFactors (*)(const InferContext&, std::span<const ArrayType> results)> shard;
  /// The op at one position: its results' parts from its operands' parts, for any mesh axes that the
  /// letters of `shard` allow. Structure ops and borders of shard_map are the partitioner's.
  Required<std::vector<Val> (*)(const LocalContext&)> local;
  Required<Cost (*)(const InferContext&, std::span<const ArrayType> results)> cost;
};

const OpDef& op_def(OpKind op);

/// Result types of an op over these operands. Throws TraceError; any parameters may be given.
std::vector<ArrayType> infer_types(const InferContext& context);

/// The work of all nodes of a graph, loops multiplied out.
Cost graph_cost(const Graph& graph);

}  // namespace stow
