// From mesh axes given to the letters of an op to how its operands and results lie, and to its
// local form. Not the choice of those axes; that is passes/partition.
#pragma once

#include <map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// The mesh axes that cut each letter of an op; letters that are not there stay whole.
using LetterAxes = std::map<int, MeshAxes>;

struct OpShardings {
  std::vector<AxisSharding> operands, results;
};

/// How operands must lie and how results then lie: partial over the axes of letters that no result
/// has. An op with letters of two kinds of reduction that are both cut is not representable.
OpShardings shardings_of(const ShardingFactors& factors, const LetterAxes& axes);

/// True if each letter's axes divide every extent that has the letter, and no mesh axis is there
/// twice.
bool can_cut(const ShardingFactors& factors, const LetterAxes& axes, const MeshShape& mesh,
             std::span<const ArrayType> operands, std::span<const ArrayType> results);

/// Appends the node at one position and returns its local results. `operands` lie as `shardings`
/// say. The builder's stamps are those of the new nodes.
std::vector<Val> localize(const Node& node, std::span<const ArrayType> operand_types,
                          std::span<const ArrayType> result_types, const OpShardings& shardings,
                          const MeshShape& mesh, GraphBuilder& builder, std::vector<Val> operands,
                          const std::function<Val(const MeshAxes&)>& index);

}  // namespace stow
