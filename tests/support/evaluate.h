// Runs a graph node by node with the reference kernels, every value in memory of its own.
// Not an executor: no plan, no fusion, no reuse. It is the oracle that passes must agree with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow::testing {

using Bytes = std::vector<std::byte>;

/// Returns the bytes of the outputs for those of the inputs, row-major.
std::vector<Bytes> evaluate(const Graph& graph, const std::vector<Bytes>& inputs);

/// Evaluates with every computed number moved up or down at random by a rounding error of its
/// dtype. The change of the results shows how much another kernel's results may differ.
std::vector<Bytes> evaluate_nudged(const Graph& graph, const std::vector<Bytes>& inputs,
                                   uint64_t seed);

/// Returns the results of one node, which must not be a structure op.
std::vector<Bytes> evaluate_op(const Graph& graph, const Node& node, std::vector<Bytes> operands);

/// Copies slice `index` along `axis` out of a stack of type `stack_type`, or into it
/// (`into_stack`).
void copy_slice(const ArrayType& stack_type, int64_t axis, int64_t index, std::byte* stack,
                std::byte* slice, bool into_stack);

}  // namespace stow::testing
