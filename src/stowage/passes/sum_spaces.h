// The iteration spaces that reductions ask for, and those in which elementwise values are wanted.
// Not the choice of units; that is fuse.h.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// An iteration space over the axes of a shape (ir/row_program.h). Without `axes` these are in their
/// own order; a number of dimensions is -1 while nothing has fixed it.
struct SumSpace {
  Dims axes;
  int n_group_dims = -1, n_row_dims = -1;
  friend bool operator==(const SumSpace&, const SumSpace&) = default;
};

/// The space of a reduction: rows first where it reduces the last axis, columns where it keeps that.
SumSpace space_of(const Graph& graph, const Node& reduction);

/// The number that both agree on, -1 standing for any; -2 if there is none.
constexpr int common_dims(int a, int b) {
  return a < 0 ? b : b < 0 || a == b ? a : -2;
}
/// True if one program may have both spaces; then `into` is made that of both.
bool unite(SumSpace& into, const SumSpace& other);

/// A reduction that reads a value: its space, and how many programs at least come one after another
/// before it has what it reads. A program has the results of its own rows at once, those of columns and
/// of kernels of other kinds not.
struct SumReader {
  SumSpace space;
  int depth = 0;
  friend bool operator==(const SumReader&, const SumReader&) = default;
};

/// How a value is read, elementwise work of its own shape seen through.
struct Wants {
  bool in_memory = false;  ///< A node reads it that is neither elementwise nor a reduction, or it is
                           ///< an output.
  bool elsewhere = false;  ///< The same of elementwise work on it.
  std::vector<SumReader> sums;  ///< Different ones, the last in the graph first.
};
/// For each value, how many programs at least come one after another before the one that makes it.
std::vector<int> find_depths(const Graph& graph);
/// One a value of the graph.
std::vector<Wants> find_wants(const Graph& graph);

}  // namespace stow
