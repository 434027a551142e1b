// Runs the local graph of every position of a mesh in lockstep with the reference kernels.
// Not a communicator: collectives read all positions' values; the oracle of what the partitioner
// makes.
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

/// What one position did.
struct MeshTraffic {
  std::map<OpKind, int64_t> count;          ///< Collectives run, by op.
  std::map<OpKind, int64_t> largest_bytes;  ///< The largest operand or result, by op.
};

/// The outputs at each position. Aborts where positions disagree on a branch or on the end of a
/// loop.
PerPosition evaluate_on_mesh(const Graph& local, const MeshShape& mesh, const PerPosition& inputs,
                             MeshTraffic* traffic = nullptr);

/// The part of an array at each position.
std::vector<Bytes> cut(const ArrayType& type, const Bytes& whole, const AxisSharding& sharding,
                       const MeshShape& mesh);
/// The array that parts make, partial ones reduced. None if copies of a part differ.
std::optional<Bytes> join(const ArrayType& type, const std::vector<Bytes>& parts,
                          const AxisSharding& sharding, const MeshShape& mesh);

/// The reduction of equal arrays by the balanced tree: split at the largest power of two below n.
Bytes tree_reduce(const ArrayType& type, std::span<const Bytes> terms, ReduceKind kind);

}  // namespace stow::testing
