// Level: lowers one graph to memory and instructions. lower_*.cpp define its functions.
// Not an interface for other passes; see lower.h.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/view.h"

namespace stow::lowering {

constexpr int kForever = std::numeric_limits<int>::max();

// Values of Destination::begin_group without a group. kOwnLife: the write begins the lifetime of
// the memory that it writes. kPieces: the write begins the lifetime of its piece of a
// concatenation. kInPlace: as kOwnLife, for a concatenation over an argument whose rows its scans
// read just before.
constexpr int kOwnLife = -1, kPieces = -2, kInPlace = -3;
constexpr int64_t kMaxPlaces = 512;  // The most places of a buffer (Buffer::n_places).

// The window in which a value should be made.
struct Destination {
  View view;
  // A number that parts of one concatenation share: the first part written begins the lifetime.
  int begin_group = kOwnLife;
  // The input of the level that lies there before; an invalid id if nothing does; none if that is
  // unknown.
  std::optional<ValueId> before;
};

class Level;

// The memory of a scan's carries and stacks.
struct ScanPlan {
  LoopId loop;
  std::unique_ptr<Level> body;
  struct Ring {
    bool invariant = false;  // true if the carry never changes
    int stack = -1;          // the stacked result that saves the carry and is its memory; or -1
    int64_t depth = 1;       // number of slots
    View base;  // slot 0, without terms of this loop
    int64_t slot_bytes = 0;
    // If the final value has a destination: that window, which is slot 0 and gets the final value.
    std::optional<View> home;
  };
  std::vector<Ring> rings;
  std::vector<bool> reusable;                    // by body input: the body may write over it
  std::vector<View> stacks;                      // whole stacked results
  std::vector<std::optional<View>> interleaved;  // stacked results that share a buffer
};

// State that all levels of one lowering share.
struct Context {
  Schedule schedule;
  const LowerOptions& options;

  BufferId add_buffer(int64_t bytes, const ProvenancePtr& provenance, std::string label,
                      int64_t slots = 1, MemoryKind kind = MemoryKind::kDevice) {
    Buffer b;
    b.bytes = bytes;
    b.kind = kind;
    b.slots = slots;
    b.slot_bytes = slots > 0 ? bytes / slots : 0;
    b.provenance = provenance;
    b.label = std::move(label);
    if (options.places_per_iteration) b.loop_dims = loop_dims;
    schedule.buffers.push_back(std::move(b));
    return BufferId(schedule.buffers.size() - 1);
  }

  int64_t iterations() const {
    int64_t n = 1;
    for (const LoopDim& dim : loop_dims) n *= dim.trip_count;
    return n;
  }

  // A cache of Level::inner_bytes().
  std::map<const Graph*, int64_t> inner_bytes;

  // The loops around the current instructions, for Buffer::loop_dims; without loops that would make
  // more than kMaxPlaces iterations.
  std::vector<LoopDim> loop_dims;
};

// While it lives, new buffers belong to the body of this loop.
class InLoop {
 public:
  InLoop(Context& context, LoopId loop, int64_t trip_count)
      : context_(context), depth_(context.loop_dims.size()) {
    if (context.iterations() * trip_count <= kMaxPlaces)
      context.loop_dims.push_back({loop, trip_count});
  }
  ~InLoop() { context_.loop_dims.resize(depth_); }
  InLoop(const InLoop&) = delete;
  InLoop& operator=(const InLoop&) = delete;

 private:
  Context& context_;
  size_t depth_;
};

// One graph: the program's own, the body of a loop or a branch.
class Level {
 public:
  Level(Context& context, const Graph& graph, std::vector<View> input_views,
        std::vector<bool> input_reusable);

  const Units& units() const { return units_; }
  const Graph& graph() const { return graph_; }
  const ValueUse& use(ValueId v) const { return units_.uses[v.index()]; }
  int position(int unit) const { return position_[static_cast<size_t>(unit)]; }
  /// The root whose memory a reader of v reads: a splat that was filled is its own root.
  ValueId made_root(ValueId v) const;
  /// Position of the last read of a root's memory; kForever if the level returns it.
  int last_use(ValueId root) const { return last_use_[root.index()]; }
  /// As last_use(), including reads of the parts of a concatenation, which may lie in its memory.
  int last_use_with_parts(ValueId root) const;
  /// Position at which a root is written; -1 for inputs.
  int definition(ValueId root) const;
  /// As definition(), but for a concatenation the position of its first part that is written.
  int first_write(ValueId root) const;

  /// Sets the window in which a root should be made. `before` as in Destination.
  void set_destination(ValueId root, View view, int begin_group = kOwnLife,
                       std::optional<ValueId> before = std::nullopt);
  bool has_destination(ValueId root) const { return destinations_[root.index()].has_value(); }
  const View& destination(ValueId root) const { return destinations_[root.index()]->view; }

  /// True if v is all of its root in the same order: the root itself or a reshape of it.
  bool is_whole(ValueId v) const;

  /// Makes `view` the destination of an output, if possible. copy_to() copies the output if it is
  /// elsewhere in the end.
  void request_output(ValueId out, const View& view, std::optional<ValueId> before = std::nullopt);

  /// Sets the actual windows of the inputs, with the strides given to the constructor.
  void set_inputs(const std::vector<View>& views);
  void set_input_reusable(const std::vector<bool>& reusable) { input_reusable_ = reusable; }

  /// Chooses destinations for the operands of scans and concatenations, consumers before producers.
  void plan();

  /// Appends the instructions of all units to `out`.
  void emit(std::vector<Instruction>& out);

  /// The window of any value whose root has been emitted.
  View access(ValueId v) const;

  /// Copies a value to a window, unless it lies there.
  void copy_to(ValueId v, const View& to, const ProvenancePtr& provenance);

  void emit_copy(const View& from, const View& to, bool begins, const ProvenancePtr& provenance);

  MemoryKind kind_of(const View& view) const;

  /// True if unit `u` may write value `v` over the memory of `root`, which it reads.
  bool can_share(int u, ValueId v, ValueId root) const;
  /// can_share() for a unit that is a sort.
  bool sort_can_share(const Node& sort, ValueId v, ValueId root) const;
  /// True if result v of a sort, which nothing reads, may lie in the memory of result `later`,
  /// which is written after it.
  bool lies_under(ValueId v, ValueId later) const;

  /// True if the concatenation `v` may be made over an input: scans stack its parts and read the
  /// same rows of the input, each slice before it is written, and nothing else reads the input.
  bool concat_can_share(ValueId v, ValueId input) const;

 private:
  const Unit& unit(int u) const { return units_.units[static_cast<size_t>(u)]; }

  // The operand to which a unit of a product and an addition adds.
  ValueId sum_of(const Unit& un) const;

  // By value, the device bytes that it takes while it lives; 0 for values that lie elsewhere.
  std::vector<int64_t> value_bytes() const;

  // Chooses the order of the units.
  void order();

  // Bytes that a nested graph takes while it runs, without its inputs.
  int64_t inner_bytes(const Graph& graph) const;

  // By unit, bytes that it takes besides operands and results: the scratch of its kernel if every
  // value is contiguous, or the bytes that its nested graphs take.
  std::vector<int64_t> scratch_bytes() const;

  // Sets sliced_only_: roots that only scans read, a slice of the leading axis at a time.
  void find_sliced_only();

  // Marks operands of a scan that must be contiguous because its body may reshape them: whole
  // operands, or each slice of operands that are sliced along the leading axis.
  void mark_whole_operands(const Node& scan);

  // ---- scans: lower_scan.cpp ----

  // Returns the plan of a scan, with its body ordered and nothing else decided if it is new.
  ScanPlan& open_scan(int u) const;

  void plan_scan(int u);

  // Returns the number of the scanned operand that is the scan's only read of `root`, slice by
  // slice along its leading axis; -1 if there is none.
  int sole_slices(const Node& scan, ValueId root) const;

  // True if the scan reads `root` once, all of it, as the initial value of carry k.
  bool begins_with(const Node& scan, int k, ValueId root) const;

  // can_share() for a scan. The final value of a carry may lie over the carry's initial value. A
  // stacked result may lie over a scanned operand if each iteration reads its slice before it
  // writes the slice of the result.
  bool scan_can_share(int u, ValueId v, ValueId root) const;
  // True if each iteration reads its slice of operand i before it writes its slice of stack j.
  bool slices_can_share(int u, int i, int j) const;

  // Places stacked results over scanned operands: if their destination is that memory already, or
  // if the operand is made only for this scan.
  void plan_over_operands(int u, const Node& node, ScanPlan& plan);
  // True if unit u, the last reader of `root`, may choose the destination of `root`.
  bool may_choose_destination(int u, ValueId root) const;

  // True if nothing reads the stack of scanned operand i after this scan, and this scan reads it
  // once.
  bool slices_die(int u, const Node& node, size_t i) const;

  ScanPlan::Ring plan_ring(const Node& node, int k, ScanPlan& plan);
  // True if the destination of a carry's final value can be a slot of its ring.
  bool has_home(ValueId result, const ScanPlan::Ring& ring) const;
  // If the initial value of carry k is an input of the level whose memory another value takes
  // later, makes that memory the destination of the final value too.
  void share_memory_of_input(int u, const Node& node, int k);

  // True if each slot of stacked result j may lie anywhere, because only scans read it, a slot at a
  // time. False for long stacks: the packer would have too much to place.
  bool may_have_independent_slots(ValueId result, const ScanParams& p, size_t j) const;

  // Puts stacks of one scan that nothing needs contiguous into one buffer, interleaved by
  // iteration. One scan's results can then take, slot by slot, the memory of the residuals that it
  // consumes; separate whole stacks could not all do that.
  void plan_interleaved(const Node& node, ScanPlan& plan);

  void plan_stack(const Node& node, size_t j, ScanPlan& plan);
  // The provenance of stacked result j: that of the node in the body that computes its slices.
  ProvenancePtr residual_provenance(const ScanPlan& plan, const ScanParams& p, size_t j,
                                    const Node& node) const;

  // Chooses the destination of the initial value of carry k.
  void plan_init(int u, const Node& node, int k, ScanPlan& plan);
  // True if no other value needs the memory of a destination once `root` is first written.
  bool is_free_for(const Destination& d, ValueId root) const;

  // True if the node reads a part of the concatenation `root` directly; the part may lie in `root`.
  bool reads_part(const Node& node, ValueId root) const;
  // True if a concatenation that has `root` as a part is read at position `at` or later.
  bool is_part_of_living(ValueId root, int at) const;

  void plan_body_outputs(const ScanParams& p, ScanPlan& plan);
  void emit_scan(int u);

  // ---- conds and whiles: lower_branch.cpp ----

  // The levels of a cond's branches, or of a while's condition and body.
  std::vector<std::unique_ptr<Level>>& levels_of(int u) const;

  // The number of the operand that is `root`, if no other operand lies in its memory; else -1.
  int sole_operand(const Node& node, ValueId root) const;

  // can_share() for a cond. A result may lie over an operand if every branch returns that operand
  // as the result, or reads it for the last time before it writes the result.
  bool cond_can_share(int u, ValueId v, ValueId root) const;
  // can_share() for a while loop.
  bool while_can_share(const Node& node, ValueId v, ValueId root) const;
  // True if `out` may take the memory of input `in`: it is that input, or the input is read for the
  // last time before `out` is written (when it is made, or copied at the end).
  bool may_become(ValueId in, ValueId out) const;

  // True if an operand dies here, so that the nested graphs may write over it.
  bool operand_dies(int u, const Node& node, size_t i, const std::vector<ValueId>& taken) const;

  void emit_cond(int u);

  // True if a window is a whole slot (or buffer without slots): bytes with one live range. A ring
  // slot must be whole, since each iteration begins its lifetime again.
  bool is_whole_slot(const View& view) const;
  // True if a window is part of a slot, and an input of this level is part of the same buffer. A
  // write to the window begins no lifetime: later iterations still read the rest of the slot.
  bool shares_slot_with_input(const View& view) const;

  // Each carry has one slot, since the number of iterations is not known. The body writes the new
  // value there after the last read of the old one, or copies it there at the end.
  void emit_while(int u);

  void emit_while_body(const std::vector<View>& slots, std::vector<Instruction>& out,
                       const Node& node);

  // ---- concatenations: lower_concat.cpp ----

  void plan_concat(int u);

  // The window that the root of `v` must take for `v` to lie at `view`; none if there is no such
  // window.
  std::optional<View> root_view(ValueId v, View view) const;

  // The offsets in bytes of the pieces of a concatenation along the leading axis that have live
  // ranges of their own: its parts, or slices of parts that scans stack. Empty for another axis.
  std::vector<int64_t> concat_pieces(const Node& node) const;

  // Returns the window of a part in the concatenation at `view`, `at` rows in; moves `at` past it.
  View part_view(View view, const Node& node, ValueId part, int64_t& at) const;

  Destination& destination_of(ValueId v, const Node& node);
  View new_buffer(ValueId v, const Node& node);
  void emit_concat(int u);
  // True if a value made at `d` begins the life of its memory: the first write of a group does.
  bool begin(const Destination& d);

  // ---- kernels: lower_kernels.cpp ----

  void emit_unit(int u);

  // Storage for a result; `begins` tells whether the write begins a new life of its memory.
  View place_result(int u, ValueId v, bool& begins, std::vector<ValueId>& taken);

  // Strides for a result whose kernel writes any strides: if all readers read it through one
  // transpose, those with which the transposed value is row-major; else contiguous ones.
  Dims strides_for_readers(ValueId v) const;

  // Returns an operand of unit u, not in `taken`, whose memory v may take; none if there is none.
  std::optional<ValueId> dying_operand(int u, ValueId v, const std::vector<ValueId>& taken) const;
  // True if v is read for the last time before `next_occupant` is written over it.
  bool dies_before(ValueId v, ValueId next_occupant) const;

  void emit_rows(int u);
  // The kernel of a unit's first node, with inputs and prologues but without outputs.
  Kernel op_kernel(int u) const;
  // True if a unit reads a value that lies exactly at `view`, other than its epilogue_output.
  bool is_read_by(const Unit& un, const View& view) const;
  ProvenancePtr unit_provenance(const Unit& un) const;
  void emit_op(int u);

  // Copies operand i if it is not contiguous and its kernel needs it contiguous.
  void lay_out(const Node& node, size_t i, View& view);

  void emit_view_copy(int u);

  // True if a window is contiguous and will begin at a disk block in every iteration. Between two
  // such windows, a move from or to the disk needs a bounce buffer only for the ends of a span.
  bool lies_on_blocks(const View& view) const;

  void push(Kernel kernel);

  Context& context_;
  const Graph& graph_;
  std::vector<View> input_views_;
  std::vector<bool> input_reusable_;
  Units units_;
  std::vector<int> order_, position_, last_use_;
  std::vector<std::optional<Destination>> destinations_;
  std::vector<std::optional<View>> storage_;
  std::vector<bool> reusable_;
  // By value: for an input, or a value in the memory of one, the value that takes that memory
  // later.
  std::vector<ValueId> next_occupant_;
  // By root: true if it is moved to another memory. A write over it waits for the move.
  std::vector<bool> is_moved_;
  std::vector<bool> sliced_only_;
  std::vector<bool> begun_;
  mutable std::vector<ValueId> overwritten_;  // stacks whose reader may write over their slots
  mutable std::map<int, std::unique_ptr<ScanPlan>> scans_;
  mutable std::map<int, std::vector<std::unique_ptr<Level>>> nested_;  // levels of conds and whiles
  std::vector<Instruction>* out_ = nullptr;
};

}  // namespace stow::lowering
