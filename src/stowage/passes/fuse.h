// The pass that groups the nodes of one graph into units, each of which becomes one kernel or loop.
// Not an order and not storage; those are order.h and lower.h.
#pragma once

#include <array>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

enum class UnitKind : uint8_t {
  kRows,    ///< Nodes that make one row program.
  kOp,      ///< One node with a kernel of its own; or a product and the addition to a sum.
  kConcat,  ///< One concatenate: its parts are written where they belong.
  kCopy,    ///< One view op whose result is no window of its operand.
  kScan,
  kCond,
  kWhile
};

struct Unit {
  UnitKind kind = UnitKind::kOp;
  std::vector<NodeId> nodes;  ///< In topological order; more than one for kRows and sums.
  /// kRows: where valid, nodes[0] is a product that only the others read, which run as its epilogue; it
  /// lies, until they are through with it, where this one of their results will.
  ValueId epilogue_output;
  /// An operand of the product nodes[0] that a row program makes in passing. Its nodes are among
  /// the last of `nodes` as well.
  struct Prologue {
    ValueId value;
    std::vector<NodeId> nodes;
    int n_row_dims = 0;
  };
  std::array<Prologue, 2> prologues;
  // kRows: the iteration space; `axes` are the axes of the nodes' shape in that order (empty: as
  // they are). The numbers of dimensions are -1 while nothing has fixed them.
  Dims dims;
  int n_row_dims = -1;
  int n_group_dims = -1;
  Dims axes;
  std::vector<int> operand_units;  ///< Units whose results it reads.
};

/// The shape of a kRows unit's full values.
Dims full_dims(const Unit& unit);

/// The row program that makes operand i of a unit's product.
Unit unit_that_makes(const Graph& graph, const Unit& unit, size_t i);

/// True for a product that adds to a sum: nodes[1] is the addition.
bool adds_to_sum(const Unit& unit);

/// True for nodes[0], where it is a product, and for the nodes that make its operands: what all of the
/// unit waits for.
bool is_before_rows(const Unit& unit, NodeId node);

/// The unit that makes a value, and the memory that the value is read from.
struct ValueUse {
  int unit = -1;       ///< The unit that makes it; -1 for inputs and for what is not made (below).
  ValueId canon;       ///< The value behind identity ops.
  ValueId root;        ///< The value whose memory it is a window of.
  bool splat = false;  ///< A constant with one value: a step of whoever reads it.
  bool lazy_iota = false;
  bool needed = false;      ///< True for a root that something outside its unit reads from memory.
  bool reshaped = false;    ///< True for a root that some reader needs contiguous.
};

struct Units {
  std::vector<Unit> units;
  std::vector<ValueUse> uses;  ///< One a value of the graph.
  std::vector<View> windows;   ///< Window of each value on its root, were the root contiguous.
};

/// `input_views` give the strides in which the graph's inputs lie. With `fuse` off every node is a
/// unit of its own. A product of `least_epilogue` elements or more may be followed by what reads it; one
/// of its operands made in passing where that is several times what each of so many threads makes at a
/// time. At 0 they may be of any size.
Units fuse(const Graph& graph, const std::vector<View>& input_views, bool fuse,
           int64_t least_epilogue, int threads);

/// The value behind identity ops and behind carries that scans hand through unchanged.
ValueId handed_through(const Graph& graph, ValueId v);

/// The dimension of a kRows unit's space whose coordinate the value is, an iota seen through
/// broadcasts and reshapes: a step, not something to read. -1 where it is no such value.
int iota_dim(const Graph& graph, const Units& units, const Unit& unit, ValueId v);

/// True when, in a kRows unit, the value is one a row (or one a column for a column sum's result).
bool is_row_value(const Unit& unit, const Shape& shape);

}  // namespace stow
