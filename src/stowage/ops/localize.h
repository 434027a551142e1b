// The shardings of an op's operands and results, and its local form, from the mesh axes that its
// letters were given. Not the choice of those axes; passes/choose_axes makes it.
#pragma once

#include <map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// The mesh axes that cut each letter of an op's ShardingFactors; a letter without an entry stays
/// whole.
using LetterAxes = std::map<int, MeshAxes>;

struct OpShardings {
  std::vector<AxisSharding> operands, results;
};

/// Returns the shardings that operands must have and results then have. Results are partial over
/// the mesh axes of letters that no result has. All of these letters must have one kind of
/// reduction.
OpShardings shardings_of(const ShardingFactors& factors, const LetterAxes& axes);

/// True if the mesh axes of each letter divide every extent with that letter, and no mesh axis
/// occurs twice.
bool can_cut(const ShardingFactors& factors, const LetterAxes& axes, const MeshShape& mesh,
             std::span<const ArrayType> operands, std::span<const ArrayType> results);

/// Appends the local form of `node` to the builder's graph and returns its local results.
/// `operands` are local values with `shardings`. `index` returns the index of the position in its
/// group over mesh axes, i32[]. New nodes get the provenance, pass, region and flag of the builder.
std::vector<Val> localize(const Node& node, std::span<const ArrayType> operand_types,
                          std::span<const ArrayType> result_types, const OpShardings& shardings,
                          const MeshShape& mesh, GraphBuilder& builder, std::vector<Val> operands,
                          const std::function<Val(const MeshAxes&)>& index);

}  // namespace stow
