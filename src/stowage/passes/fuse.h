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
  kOp,      ///< One node with a kernel of its own; or a product and an addition of it to a sum.
  kConcat,  ///< One concatenate; its parts are written in place where possible.
  kCopy,    ///< One view op whose result is not a window on its operand.
  kScan,
  kCond,
  kWhile
};

struct Unit {
  UnitKind kind = UnitKind::kOp;
  std::vector<NodeId> nodes;  ///< In topological order; more than one for kRows and sums.
  /// kRows: if valid, nodes[0] is a product and the other nodes are its epilogue, which alone reads
  /// it. The product lies in the memory of this result of the epilogue until the epilogue has read
  /// it.
  ValueId epilogue_output;
  /// A row program that makes one operand of the product nodes[0], piece by piece. Its nodes are
  /// also among the last of Unit::nodes.
  struct Prologue {
    ValueId value;
    std::vector<NodeId> nodes;
    int n_row_dims = 0;
  };
  std::array<Prologue, 2> prologues;
  // kRows: the iteration space (ir/row_program.h). Dimension i is axis `axes[i]` of the nodes'
  // shape; empty `axes` means axis i. The numbers of dimensions are -1 as long as no reduction
  // fixes them.
  Dims dims;
  int n_row_dims = -1;
  int n_group_dims = -1;
  Dims axes;
  std::vector<int> operand_units;  ///< Units whose results the unit reads.
};

/// The shape of the values of a kRows unit that have one element for each point.
Dims full_dims(const Unit& unit);

/// Returns the prologue of operand i of a unit's product, as a unit of its own.
Unit prologue_unit(const Graph& graph, const Unit& unit, size_t i);

/// True for a product with an addition to a sum: nodes[1] is the addition.
bool adds_to_sum(const Unit& unit);

/// True for the product of a unit with an epilogue, and for the nodes of prologues; false for the
/// nodes of the unit's row program.
bool is_product_or_prologue(const Unit& unit, NodeId node);

/// The unit that makes a value, and the memory that the value is read from.
struct ValueUse {
  int unit = -1;       ///< The unit that makes it; -1 for inputs, and for constants that are steps.
  ValueId canon;       ///< The value without identity ops: the operand of the first of them.
  ValueId root;        ///< The value in whose memory it is a window.
  bool splat = false;  ///< True for a constant of one number; a row program has it as a step.
  bool lazy_iota = false;  ///< True for an iota; a row program that can computes it as a step.
  /// True for a root that another unit or the caller reads from memory.
  bool needs_memory = false;
  bool needs_contiguous = false;  ///< True for a root that a reader needs contiguous.
};

struct Units {
  std::vector<Unit> units;
  std::vector<ValueUse> uses;  ///< By value of the graph.
  std::vector<View> windows;   ///< By value, its window on its root if the root is contiguous.
};

/// Groups the nodes of `graph` into units. `input_views` gives the strides of the graph's inputs.
/// With `fuse` off, every node is a unit of its own. Only products of at least `least_epilogue`
/// elements get an epilogue, and only operands that are several pieces for each of `threads`
/// threads get a prologue. With `least_epilogue` 0 both may have any size.
Units fuse(const Graph& graph, const std::vector<View>& input_views, bool fuse,
           int64_t least_epilogue, int threads);

/// Returns the value that `v` equals, through identity ops and carries that scans pass through
/// unchanged.
ValueId skip_passthrough(const Graph& graph, ValueId v);

/// Returns the dimension of a kRows unit's iteration space whose coordinate `v` equals: `v` is an
/// iota, possibly broadcast or reshaped. Returns -1 for any other value.
int iota_dim(const Graph& graph, const Units& units, const Unit& unit, ValueId v);

/// True if a value of this shape has one element for each row of a kRows unit.
bool is_row_value(const Unit& unit, const Shape& shape);

}  // namespace stow
