// The table of samples, at least one an op: what type rules, kernels and gradients are tested on.
// Not expected values; those come from the reference kernels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow::testing {

/// Where the values of an operand are drawn from: [low, high); integers are whole numbers of it,
/// bools are coin tosses.
struct Range {
  double low = -2, high = 2;
};

struct Sample {
  std::string name;  ///< What is special about it: "interior and negative"; unique within an op.
  OpKind op = OpKind::kConstant;
  std::vector<ArrayType> operands;
  Params params;
  std::vector<ArrayType> results;  ///< What the type rule must give.
  std::vector<Range> ranges;       ///< One an operand; operands without one take the default.
  /// Finite differences of float results over float operands make sense once f32 is retyped to f64:
  /// false for ops without a gradient, for low precision and for integers.
  bool differentiable = false;
  /// Values of an operand must not come near each other: ties are kinks.
  bool distinct = false;
  /// The results that take a cotangent; empty means all floats.
  std::vector<int> cotangent_results;
  std::vector<GraphPtr> graphs;

  Range range(size_t operand) const { return operand < ranges.size() ? ranges[operand] : Range{}; }
};

/// "add/f32", unique, for messages and test names.
std::string to_string(const Sample& sample);
/// A graph of the sample's op alone: inputs are its operands, outputs its results.
Graph one_op(const Sample& sample);

/// All samples, in the order of the op list.
const std::vector<Sample>& samples();

/// The sample with one dtype replaced by another in operands, parameters, results and nested
/// graphs. Attention's lse stays f32, bitcasts stay.
Sample retyped(const Sample& sample, DType from, DType to);

/// The sample with f64 for f32, where its op takes f64: all but attention do.
Sample widest(const Sample& sample);

/// Parses "f32[8,64]", "f32<pinned_host>[4]", "bf16[]". Aborts on anything else.
ArrayType parse_type(std::string_view text);
std::vector<ArrayType> parse_types(std::initializer_list<std::string_view> texts);

}  // namespace stow::testing
