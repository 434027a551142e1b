// Fuser: the implementation of fuse(), in sources for groups, rules, epilogues and prologues.
// Not an interface for callers; see fuse.h.
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
  // Fills in canon, root and windows, with contiguous roots and the given strides of inputs.
  void resolve_values();
  // True if a unit must make the node's results.
  bool is_made(NodeId id) const;
  // Drops units that were merged into others.
  void compact();
  // Adds units for constants and iotas that a kernel reads from memory.
  void fill_leaves();
  // True if node m of unit u has v, a splat or iota, as a step of its row program.
  bool is_step_of(int u, NodeId m, ValueId v);
  // Adds a unit for v if it is a splat or iota, and makes it an operand of unit `reader`, if not
  // -1.
  void fill(ValueId v, int reader);
  // Sets ValueUse::needs_memory.
  void mark_needed();
  // The root of v; a splat that is written to memory is its own root.
  ValueId effective_root(ValueId v);

  // ---- groups (fuse_groups.cpp) ----
  // Puts a node into a unit.
  void place(NodeId id);
  // The same for an elementwise node or a reduction.
  void place_rows(NodeId id);
  void add_unit(Unit unit, const Node& node);
  // Notes that unit u reads a result of unit `operand`.
  void link(int u, int operand);
  // Notes that unit u, and with it all units that read it, depends on `node`.
  void raise(int u, size_t node);
  static void add_operand_unit(Unit& unit, int operand);
  // Removes unit `from`, whose nodes unit `into` has taken; only `into` reads their results.
  void absorb(int from, int into);
  // Makes one unit of an add and of a product that only the add reads: the kernel adds the product
  // to the other operand in memory. The product is rounded before it is added, so the bits are the
  // same. Returns true if the node was such an add.
  bool accumulate(NodeId id);
  // True if `sum` is a carry and `result` its next value: a gradient summed over a loop's
  // iterations.
  bool is_carried(ValueId sum, ValueId result) const;
  // True for a product, or a value to which a product was added.
  bool is_sum_of_products(ValueId v);
  bool is_output(ValueId v) const;
  // The unit that a node would be alone, with its iteration space.
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
  // True if unit u, elementwise work, may take the iteration space of a reduction of it that
  // permutes axes: then no value of it may have to lie in memory.
  bool may_permute_axes(int u, const SumSpace& space);
  // True for a value v that only reductions read, none of which can be in unit u, because their
  // space differs or they come later, if v reads no full value of u. In another unit v need not be
  // stored.
  bool is_wanted_elsewhere(ValueId v, int u);
  // The depth (sum_spaces.h) of the reductions in a unit, or of those that read its values.
  int depth_of_unit(int u) const;
  // True for a unit that reads no array as large as its iteration space, such as a comparison of
  // rows with columns.
  bool reads_nothing_large(int u);
  // True for the reduction of a whole large array, such as a norm of weights, made in unit u.
  // Its readers pass over the array a second time in any case. In one unit, all that is computed
  // from the norm, for this array and for others, would have to join the unit.
  bool reads_long_row_value(ValueId v, const Unit& g, int u);
  // True unless the unit has members, other than reductions, with one element for each row.
  bool columns_fit(const Unit& joined) const;
  // False if groups have few points and a row value exists as well: columns and groups could then
  // not be interchanged, and the kernel would run one short group after another.
  bool groups_fit(const Unit& joined, NodeId more) const;
  // True if a unit with one more node has few nodes and reads few arrays.
  bool reads_few(const Unit& few, NodeId more) const;
  // True if a member of unit u may read v: a splat, an iota of the iteration space, a value of
  // another unit, a member's value unchanged, or a member's row value through broadcasts and
  // reshapes.
  bool readable(ValueId v, const Unit& g, int u, bool full);
  // True for a result of a column reduction.
  bool is_column_result(ValueId v) const;
  // True if element (row, column) of v is the root's element of that row.
  bool is_row_window(ValueId v, const Unit& g) const;
  // True if an operand of the node, made outside unit u, depends on u.
  bool reaches_outside(const Node& node, int u);
  // True if a unit of `stack`, or one on which it depends, is `target`.
  bool reaches(std::vector<int> stack, int target);
  // True if running units a and `into` as one makes no large value wait in memory: only these two
  // read the large values of a, `into` reads all large values that a reads, and both are ready to
  // run at the same time. If a reads nothing large, it may also be ready earlier.
  bool are_ready_together(int a, int into);
  // True if one of `others` depends on unit o too, or o is a small row program over operands that
  // do.
  bool is_ready_with(int o, const std::vector<int>& others, int space);
  // Fills in heavy_before_, waits_for_, last_heavy_ and is_held_.
  void count_heavy();
  // True if one node is backward work and the other much earlier forward work. In one unit the
  // backward work would run early and its results would wait in memory; if it is a clone,
  // recomputation would save nothing.
  bool is_far(NodeId a, NodeId b) const;
  // True if node `id`, backward work, is far from recomputed work of another layer in unit u. In
  // one unit the node would run early, unless it depends on later work. `other` is the node's own
  // unit, if any. That is harmless if it overwrites all its operands. If other work reads an
  // operand too, operand and result would both wait.
  bool is_far_from_clones(int u, NodeId id, int other = -1);
  // True if backward work `id` would join forward unit u, run before the products between the two,
  // and wait in memory for a later product, while the value of u that it reads waits as well.
  bool would_wait_beside(int u, NodeId id);
  // The number of nodes with kernels of their own between two nodes.
  int heavy_between(NodeId first, NodeId second) const;

  // ---- epilogues of products (fuse_epilogues.cpp) ----
  // Makes row units epilogues of the product that they alone read.
  void add_epilogues();
  void find_readers();
  // The number of reads of `root` by nodes of a unit; -1 if one reads it through a view.
  int n_reads(const Unit& u, ValueId root);
  // The number of leading axes of a product that come from its left operand.
  int n_rows_of(const Node& product) const;
  // The product that row unit u may follow as an epilogue: of the unit's shape and row dimensions,
  // read nowhere else, and made after all other operands of the unit. Invalid if there is none.
  ValueId product_for_epilogue(int u);
  // The result of unit u in whose memory the product may lie first; invalid if product and epilogue
  // together would need more memory than one after the other.
  ValueId choose_epilogue_output(int u, ValueId product);
  // True if operands and result of a product are f32, bf16 or f16.
  bool are_small_floats(const Node& product) const;

  // ---- prologues of products (fuse_prologues.cpp) ----
  // Makes row units prologues of the product that alone reads their only result.
  void add_prologues();
  bool has_product(const Unit& u) const;
  // The number of row dimensions of the row program that makes operand i of unit u's product, if
  // that may be a prologue; else none.
  std::optional<int> prologue_rows(int u, size_t i);
  // The smallest operand, in elements, that gets a prologue: pieces take memory too.
  int64_t min_prologue_elems(size_t i) const;
  // True for an op that is cheap enough to be computed several times in a prologue.
  static bool is_little_work(OpKind op);
  // Bytes of the arrays that a prologue `maker` reads and that nothing reads after the product:
  // they have to live until the product ends. Arguments are not counted.
  int64_t read_bytes(int maker, NodeId product);

  const Graph& graph_;
  const std::vector<View>& input_views_;
  bool fuse_;
  int64_t least_epilogue_;
  int threads_;
  Units result_;
  std::vector<ValueReaders> value_readers_;  // by value
  std::vector<int> depths_;                  // by value
  std::vector<bool> copies_;                 // by node: true for a view op that must copy
  std::vector<size_t> first_node_;           // by unit: its first node
  std::vector<size_t> reached_;              // by unit: the last node of it and its dependences
  std::vector<std::vector<int>> readers_;    // by unit: units that read it
  std::vector<int> n_uses_;                  // by value: uses by nodes and as an output
  std::vector<std::vector<NodeId>> readers_of_root_;  // by root: readers that are computed
  std::vector<int> n_readers_;               // by root: reads by nodes and as an output
  std::vector<size_t> last_reader_;          // by root: the last node that reads it
  // Heavy nodes have kernels of their own, collectives aside.
  std::vector<int> heavy_before_;            // by node: heavy nodes up to it, itself included
  std::vector<size_t> waits_for_;            // by node: the last heavy node that it depends on
  std::vector<size_t> last_heavy_;           // by node: itself if it is heavy, else waits_for_
  // By node: true if elementwise work on its result waits for a later heavy node.
  std::vector<bool> is_held_;
  std::vector<int> seen_;
  int stamp_ = 0;
};

}  // namespace stow::fusion
