// Runs the local graph of every position of a mesh in lockstep with the reference kernels.
// Not a communicator: it is the oracle for the partitioner, and reads the values of all positions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

/// Values by position, then by input or output.
using PerPosition = std::vector<std::vector<Bytes>>;

/// The collectives of one position.
struct MeshTraffic {
  std::map<OpKind, int64_t> count;          ///< Number of collectives run, by op.
  std::map<OpKind, int64_t> largest_bytes;  ///< The largest operand or result, by op.
};

/// Returns the outputs at each position. Aborts if positions take different branches or end a loop
/// at different iterations.
PerPosition evaluate_on_mesh(const Graph& local, const MeshShape& mesh, const PerPosition& inputs,
                             MeshTraffic* traffic = nullptr);

/// Returns the part of an array at each position.
std::vector<Bytes> cut(const ArrayType& type, const Bytes& whole, const AxisSharding& sharding,
                       const MeshShape& mesh);
/// Returns the whole array of parts, after reducing partial sums. None if copies of a part differ.
std::optional<Bytes> join(const ArrayType& type, const std::vector<Bytes>& parts,
                          const AxisSharding& sharding, const MeshShape& mesh);

/// Reduces arrays of one type by the balanced tree of comm::tree_reduce().
Bytes tree_reduce(const ArrayType& type, std::span<const Bytes> terms, ReduceKind kind);

}  // namespace stow::testing
