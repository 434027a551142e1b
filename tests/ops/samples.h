// The table of samples, at least one for each op, for tests of type rules, kernels and gradients.
// Not expected values; those come from the reference kernels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow::testing {

/// The interval [low, high) from which values of an operand are drawn. Integers are uniform in it;
/// bools ignore it.
struct Range {
  double low = -2, high = 2;
};

struct Sample {
  std::string name;  ///< Distinguishes the samples of an op: "interior and negative".
  OpKind op = OpKind::kConstant;
  std::vector<ArrayType> operands;
  Params params;
  std::vector<ArrayType> results;  ///< The expected result of the type rule.
  std::vector<Range> ranges;       ///< By operand; operands without one have the default.
  /// True if finite differences can check the gradients of float results with respect to float
  /// operands, after f32 is retyped to f64. False for ops without a gradient, for low precision and
  /// for integers.
  bool differentiable = false;
  /// True if values of an operand must not be close to each other, because ties have no derivative.
  bool distinct = false;
  /// Indices of the results that get a cotangent; empty: all float results.
  std::vector<int> cotangent_results;
  std::vector<GraphPtr> graphs;

  Range range(size_t operand) const { return operand < ranges.size() ? ranges[operand] : Range{}; }
};

/// Returns a unique name, "add/f32", for messages and test names.
std::string to_string(const Sample& sample);
/// Returns a graph of only the sample's op: its inputs are the operands, its outputs the results.
Graph one_op(const Sample& sample);

/// Returns all samples, in the order of the op list.
const std::vector<Sample>& samples();

/// Returns the sample with one dtype replaced by another in operands, parameters, results and
/// nested graphs. Attention's lse stays f32; bitcasts do not change.
Sample retyped(const Sample& sample, DType from, DType to);

/// Returns the sample with f64 in place of f32, if its op supports f64 (all but attention do).
Sample widest(const Sample& sample);

/// Parses "f32[8,64]", "f32<pinned_host>[4]", "bf16[]". Aborts on anything else.
ArrayType parse_type(std::string_view text);
std::vector<ArrayType> parse_types(std::initializer_list<std::string_view> texts);

}  // namespace stow::testing
