// Fuser: what fuse() works with, shared by the sources that group nodes, join products with what follows
// them and with what makes their operands. Not for callers; see fuse.h.
#pragma once

#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"
#include "stowage/passes/sum_spaces.h"

namespace stow::fusion {

class Fuser {
 public:
  Fuser(const Graph& graph, const std::vector<View>& input_views, bool fuse, int64_t least_epilogue,
        int threads)
      : graph_(graph),
        input_views_(input_views),
        fuse_(fuse),
        least_epilogue_(least_epilogue),
        threads_(threads) {}

  Units run();

 private:
  ValueUse& use(ValueId v) { return result_.uses[v.index()]; }
  const Unit& unit(int u) const { return result_.units[static_cast<size_t>(u)]; }
  int n_uses(ValueId v) const { return n_uses_[v.index()]; }
  bool is_full(ValueId v, const Unit& g) const {
    return graph_.type(v).shape.dims() == full_dims(g);
  }
  bool is_product(ValueId v) const {
    return !graph_.is_input(v) && graph_.def(v).op == OpKind::kDotGeneral;
  }

  // ---- values and the units that make them (fuse.cpp) ----
  // Windows and roots, as if every root were contiguous and inputs lay as told.
  void resolve_values();
  bool is_made(NodeId id) const;
  // Drops units that were merged away.
  void compact();
  // Constants and iotas that a kernel other than a row program reads must be made.
  void fill_leaves();
  // True if node m of a unit reads v as a step of its program.
  bool is_step_of(int u, NodeId m, ValueId v);
  void fill(ValueId v, int reader);
  void mark_needed();
  ValueId effective_root(ValueId v);

  // ---- groups (fuse_groups.cpp) ----
  void place(NodeId id);
  void place_rows(NodeId id);
  void add_unit(Unit unit, const Node& node);
  // Unit u reads what unit `operand` makes.
  void link(int u, int operand);
  // Unit u has come to depend on `node`, and with it all that read it.
  void raise(int u, size_t node);
  static void add_operand_unit(Unit& unit, int operand);
  // Unit `into`, which has been given the nodes of unit `from` and alone reads what they make, takes its
  // place.
  void absorb(int from, int into);
  // Makes one unit of an add and of a product that only it reads: the product adds to the other
  // operand in memory. It is rounded before it is added, so the bits are the same. Returns true if
  // the node was such an add.
  bool accumulate(NodeId id);
  // True if `sum` is a carry and `result` its next value: a gradient summed over a loop's
  // iterations.
  bool is_carried(ValueId sum, ValueId result) const;
  // True for a product, or a value to which a product was added.
  bool is_sum_of_products(ValueId v);
  bool is_output(ValueId v) const;
  // The iteration space that a node asks for, standing alone.
  Unit own_unit(NodeId id);
  static void set_space(Unit& unit, const SumSpace& space);
  static SumSpace space_of_unit(const Unit& unit);
  void join(NodeId id, const Unit& own, int u);
  void merge(int a, int into);

  // ---- what may be one row program (fuse_rules.cpp) ----
  // True if a node, whose unit alone would be `own`, may become part of unit u.
  bool may_join(NodeId id, const Unit& own, int u);
  // True if unit a may become part of unit `into`.
  bool may_merge(int a, int into);
  // True if a unit of elementwise work can take up the space of a reduction of it, other than its axes'
  // own order: no value of it need lie in memory.
  bool may_turn(int u, const SumSpace& space);
  // True for a value that only reductions of other spaces than a unit's want, or later ones, and which
  // reads nothing large of it: in another unit it need not be stored.
  bool is_wanted_elsewhere(ValueId v, int u);
  // The depth of the reductions in a unit, or of those that it is for.
  int depth_of_unit(int u) const;
  // True for a unit that reads no array of its own size, such as a comparison of rows with columns.
  bool reads_nothing_large(int u);
  // True for a value of a row that is the whole of a large array, such as a norm of weights. What
  // reads it passes over the row once more anyway; in the same unit it would bring together all
  // that is computed from the norm, of one array and of the others.
  bool reads_long_row_value(ValueId v, const Unit& g, int u);
  // True unless the unit's rows make it ambiguous by column which element a member reads.
  bool columns_fit(const Unit& joined) const;
  // True unless groups of few points each would be gone through one by one: where rows are reduced as
  // well, or read as such, columns cannot change places with groups.
  bool groups_fit(const Unit& joined, NodeId more) const;
  // True if a unit and one more node are few enough, and read few arrays.
  bool reads_few(const Unit& few, NodeId more) const;
  // True if a member of unit u may read v: a splat, an iota of the iteration space, a value of
  // another unit, a member's value unchanged, or a member's row value through broadcasts and
  // reshapes.
  bool readable(ValueId v, const Unit& g, int u, bool full);
  bool is_column_result(ValueId v) const;
  // True when element (row, column) of v is the root's element of that row.
  bool is_row_window(ValueId v, const Unit& g) const;
  // True when something the node reads, outside unit u, needs u first.
  bool reaches_outside(const Node& node, int u);
  // True if a unit of `stack`, or one on which it depends, is `target`.
  bool reaches(std::vector<int> stack, int target);
  // True when unit a makes nothing large for a third and reads nothing large that `into` does not,
  // and neither of them, but for what `into` reads of a, can begin before the other: to run them as
  // one makes nothing wait in memory. Where a reads nothing large at all it may wait itself.
  bool are_one_in_time(int a, int into);
  // True if one of `others` waits for unit o as well, or o is little work on what they wait for.
  bool is_ready_with(int o, const std::vector<int>& others, int space);
  void count_heavy();
  // True if one node is backward work and the other forward work of long before. In one unit the
  // backward work would run early, and its results would wait in memory: a clone would lose the
  // effect of recomputation.
  bool is_far(NodeId a, NodeId b) const;
  // The same for backward work of one layer and work that was recomputed for another layer: in one
  // unit the former would run early, unless it waits for something later. That is harmless if it
  // overwrites all that it reads; if other work reads an operand too, operand and result would both
  // wait.
  bool is_far_from_clones(int u, NodeId id, int other = -1);
  // True if backward work `id` would join forward unit u, run before the products between the two, and wait
  // in memory for a later product, while the value of u that it reads waits as well.
  bool would_wait_beside(int u, NodeId id);
  int heavy_between(NodeId first, NodeId second) const;

  // ---- row programs behind products (fuse_epilogues.cpp) ----
  // Row programs that read a product which nothing else reads run piece by piece behind it.
  void add_epilogues();
  void find_readers();
  // How often the nodes of a unit read what lies in the memory of `root`; -1 where not as it is.
  int n_reads(const Unit& u, ValueId root);
  int n_rows_of(const Node& product) const;
  // The product that row unit u may follow piece by piece: all of its space, rows as rows, read
  // nowhere else, and made after whatever else the unit reads.
  ValueId product_before(int u);
  // The result of unit u in whose memory its product may lie at first; none where the two as one
  // would need more memory than one after the other.
  ValueId choose_epilogue_output(int u, ValueId product);
  bool are_small_floats(const Node& product) const;

  // ---- row programs before products (fuse_prologues.cpp) ----
  // Row programs whose only result is an operand of a product, and read nowhere else, make it in passing.
  void add_prologues();
  bool has_product(const Unit& u) const;
  // How many dimensions of operand i of unit u's product are the rows of what makes it, where that may
  // happen in passing.
  std::optional<int> rows_that_make(int u, size_t i);
  // Elements of an operand that is worth it: pieces take memory too.
  int64_t least_made(size_t i) const;
  static bool is_little_work(OpKind op);
  // Bytes of the arrays that a unit reads and that nothing reads after the product, arguments
  // aside: these arrays would live on.
  int64_t read_bytes(int maker, NodeId product);

  const Graph& graph_;
  const std::vector<View>& input_views_;
  bool fuse_;
  int64_t least_epilogue_;
  int threads_;
  Units result_;
  std::vector<Wants> wants_;                 // by value
  std::vector<int> depths_;                  // likewise
  std::vector<bool> copies_;
  std::vector<size_t> first_node_;           // by unit
  std::vector<size_t> reached_;              // the last node of it and of all that it depends on
  std::vector<std::vector<int>> readers_;    // units that read it
  std::vector<int> n_uses_;                  // by value: uses by nodes and as an output
  std::vector<std::vector<NodeId>> readers_of_root_;  // by root: readers that are computed
  std::vector<int> n_readers_;               // by root: reads by nodes and as an output
  std::vector<size_t> last_reader_;
  std::vector<int> heavy_before_;            // nodes up to each that have kernels of their own
  std::vector<size_t> waits_for_;            // by node: the last such node that it depends on
  std::vector<size_t> last_heavy_;           // by node: itself if it is one, else waits_for_
  // By node: true if elementwise work on its result waits for a later node with a kernel of its
  // own.
  std::vector<bool> is_held_;
  std::vector<int> seen_;
  int stamp_ = 0;
};

}  // namespace stow::fusion
