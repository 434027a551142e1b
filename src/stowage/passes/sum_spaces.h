// The iteration spaces of reductions, and the reductions that read each elementwise value.
// Not the choice of units; fuse.h makes it.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// An iteration space over the axes of a shape (ir/row_program.h): dimension i is axis `axes[i]`,
/// or axis i if `axes` is empty. A number of dimensions is -1 as long as no reduction fixes it.
struct SumSpace {
  Dims axes;
  int n_group_dims = -1, n_row_dims = -1;
  friend bool operator==(const SumSpace&, const SumSpace&) = default;
};

/// The space of a reduction. If it reduces the last axis, it is a row reduction and the kept axes
/// are the rows; else it is a column reduction.
SumSpace space_of(const Graph& graph, const Node& reduction);

/// The number of dimensions that fits both, where -1 fits any; -2 if there is none.
constexpr int common_dims(int a, int b) {
  return a < 0 ? b : b < 0 || a == b ? a : -2;
}
/// True if one program may have both spaces; `into` then becomes their common space.
bool unite(SumSpace& into, const SumSpace& other);

/// A reduction that reads a value: its space, and the depth (find_depths) of its operand.
struct SumReader {
  SumSpace space;
  int depth = 0;
  friend bool operator==(const SumReader&, const SumReader&) = default;
};

/// The readers of a value, directly or through elementwise work on it.
struct ValueReaders {
  bool in_memory = false;  ///< True for an output, or if a node other than elementwise work and
                           ///< reductions reads the value.
  /// True if `in_memory` holds for elementwise work on the value.
  bool in_memory_downstream = false;
  std::vector<SumReader> sums;  ///< Different readers, the last in the graph first.
};
/// By value, its depth: the least number of programs that must run one after another before the
/// program that makes it. A program can read the results of its own row reductions, but not those
/// of column reductions or of other kernels.
std::vector<int> find_depths(const Graph& graph);
/// By value, its readers.
std::vector<ValueReaders> find_value_readers(const Graph& graph);

}  // namespace stow
