// Runs a graph node by node with the reference kernels, every value in memory of its own.
// Not an executor: no plan, no fusion, no reuse; the oracle of what passes must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow::testing {

using Bytes = std::vector<std::byte>;

/// The bytes of the outputs, row-major, given those of the inputs.
std::vector<Bytes> evaluate(const Graph& graph, const std::vector<Bytes>& inputs);

/// The same with every number that an op computes off by what another kernel may round differently
/// in its dtype, up or down at random: how far results move says how far they may differ.
std::vector<Bytes> evaluate_nudged(const Graph& graph, const std::vector<Bytes>& inputs,
                                   uint64_t seed);

/// The results of one node that is no structure op.
std::vector<Bytes> evaluate_op(const Graph& graph, const Node& node, std::vector<Bytes> operands);

/// Copies slice `index` along `axis` of a stack of that type out of it, or into it.
void copy_slice(const ArrayType& stack_type, int64_t axis, int64_t index, std::byte* stack,
                std::byte* slice, bool into_stack);

}  // namespace stow::testing
