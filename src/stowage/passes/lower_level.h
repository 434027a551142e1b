// Level: the place of each value of a graph, and the instructions that make the value. Five files
// define its functions, each those of one subject.
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

// No group: a write begins the life of what it writes; kPieces: of its piece of a concatenation;
// kInPlace: as kOwnLife, over rows of an argument that its scan has just read.
constexpr int kOwnLife = -1, kPieces = -2, kInPlace = -3;
constexpr int64_t kMaxPlaces = 512;  // Limit of a buffer's slots and iterations that lie apart.

// A place that a value is asked to be made at.
struct Destination {
  View view;
  // Parts of one concatenation share a group: the first written begins it.
  int begin_group = kOwnLife;
  // The input of the level that lies there before; an invalid one where nothing does, none where that
  // is not known.
  std::optional<ValueId> before;
};

class Level;

// How a scan's values lie.
struct ScanPlan {
  LoopId loop;
  std::unique_ptr<Level> body;
  struct Ring {
    bool invariant = false;  // the carry never changes
    int stack = -1;          // the stacked result that saves it, sharing its memory
    int64_t depth = 1;
    View base;  // slot 0, without terms of this loop
    int64_t slot_bytes = 0;
    // The place that the result is asked for at: slot 0, where the final value lies.
    std::optional<View> home;
  };
  std::vector<Ring> rings;
  std::vector<bool> reusable;                    // body inputs whose memory the body may write over
  std::vector<View> stacks;                      // whole stacked results
  std::vector<std::optional<View>> interleaved;  // stacked results that share a buffer
};

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
    if (options.iterations_apart) b.each = each;
    schedule.buffers.push_back(std::move(b));
    return BufferId(schedule.buffers.size() - 1);
  }

  int64_t iterations() const {
    int64_t n = 1;
    for (const EachIteration& e : each) n *= e.trip_count;
    return n;
  }

  // Bytes that a nested graph takes while it runs, beside its inputs; a cache of
  // Level::inner_bytes().
  std::map<const Graph*, int64_t> inner_bytes;

  // The loops around the instructions that are being made; those do not count with which the
  // iterations would be too many.
  std::vector<EachIteration> each;
};

// While it lives, buffers are made for the body of this loop.
class InLoop {
 public:
  InLoop(Context& context, LoopId loop, int64_t trip_count)
      : context_(context), depth_(context.each.size()) {
    if (context.iterations() * trip_count <= kMaxPlaces) context.each.push_back({loop, trip_count});
  }
  ~InLoop() { context_.each.resize(depth_); }
  InLoop(const InLoop&) = delete;
  InLoop& operator=(const InLoop&) = delete;

 private:
  Context& context_;
  size_t depth_;
};

// One graph: the program's own or a loop's body.
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
  /// The same, parts of a concatenation that may lie in it and are read by themselves counted.
  int last_use_with_parts(ValueId root) const;
  /// Position at which a root is written; -1 for inputs.
  int definition(ValueId root) const;
  /// As definition(), but parts that are written where they belong in a concatenation count.
  int first_write(ValueId root) const;

  /// `before` as in Destination.
  void set_destination(ValueId root, View view, int begin_group = kOwnLife,
                       std::optional<ValueId> before = std::nullopt);
  bool has_destination(ValueId root) const { return destinations_[root.index()].has_value(); }
  const View& destination(ValueId root) const { return destinations_[root.index()]->view; }

  /// True when v is all of its root in the same order: the root itself or a reshape of it.
  bool is_whole(ValueId v) const;

  /// Asks for an output to be made in this window, where that can be; copy_to does the rest.
  void send_output(ValueId out, const View& view, std::optional<ValueId> before = std::nullopt);

  /// Real windows of the inputs; strides as told at construction.
  void set_inputs(const std::vector<View>& views);
  void set_input_reusable(const std::vector<bool>& reusable) { input_reusable_ = reusable; }

  /// Destinations of what scans and concatenations are given, consumers before producers.
  void plan();

  void emit(std::vector<Instruction>& out);

  /// The window of any value whose root has been emitted.
  View access(ValueId v) const;

  /// Copies a value to a window, unless it lies there.
  void copy_to(ValueId v, const View& to, const ProvenancePtr& provenance);

  void emit_copy(const View& from, const View& to, bool begins, const ProvenancePtr& provenance);

  MemoryKind kind_of(const View& view) const;

  /// True when `unit` may write value `v` over the memory of `root`, which it reads.
  bool can_share(int u, ValueId v, ValueId root) const;
  /// can_share() for a unit that is a sort.
  bool sort_can_share(const Node& sort, ValueId v, ValueId root) const;
  /// True if result v of a sort, which nothing reads, may lie where the next result, `later`, is written
  /// after it.
  bool lies_under(ValueId v, ValueId later) const;

  /// True when the concatenation `v` may be made over an input: its parts are stacked by scans that
  /// read the same rows of the input, each slice before it is written, and nothing else reads it.
  bool concat_can_share(ValueId v, ValueId input) const;

 private:
  const Unit& unit(int u) const { return units_.units[static_cast<size_t>(u)]; }

  // The sum that a unit of a product and an addition adds to.
  ValueId sum_of(const Unit& un) const;

  // Bytes of the device that each value takes while it lives; 0 for values that lie elsewhere.
  std::vector<int64_t> value_bytes() const;

  void order();

  // Bytes that a nested graph takes, in an order of its own.
  int64_t inner_bytes(const Graph& graph) const;

  // Bytes that each unit of one op takes beside its operands and results: its kernel's scratch if
  // every value were contiguous, or the bytes that its nested graphs need.
  std::vector<int64_t> scratch_bytes() const;

  // Roots that are read by scans alone, a slice of the leading axis at a time.
  void find_sliced_only();

  // A body may reshape what it gets, so that must be contiguous: all of it, or, where slices of
  // the leading axis are handed in, each slice.
  void mark_whole_operands(const Node& scan);

  // ---- scans: lower_scan.cpp ----

  // The body of a scan, ordered, and nothing planned yet.
  ScanPlan& open_scan(int u) const;

  void plan_scan(int u);

  // The scanned operand, if there is one, that is all that the scan reads of `root`, slice by slice
  // of its leading axis; else -1.
  int sole_slices(const Node& scan, ValueId root) const;

  // True if the scan reads `root` once, all of it, as what carry k begins with.
  bool begins_with(const Node& scan, int k, ValueId root) const;

  // can_share() for a scan. The final value of a carry may lie over the carry's initial value. A
  // stacked result may lie over a scanned operand if each iteration has read its slice when it
  // writes the result's.
  bool scan_can_share(int u, ValueId v, ValueId root) const;
  // True if each iteration has read its slice of operand i when it writes its slice of stack j.
  bool slices_can_share(int u, int i, int j) const;

  // Stacked results that are to lie over scanned operands: where that was settled already, and over
  // what is made whole for this scan alone.
  void plan_over_operands(int u, const Node& node, ScanPlan& plan);
  // True if a value that unit u reads last can be made where u wants it.
  bool may_be_sent(int u, ValueId root) const;

  // True if nothing reads the stack of scanned operand i after this scan, and this scan reads it
  // once.
  bool slices_die(int u, const Node& node, size_t i) const;

  ScanPlan::Ring plan_ring(const Node& node, int k, ScanPlan& plan);
  // True if the final value of a carry is asked for where a slot of its ring can lie.
  bool has_home(ValueId result, const ScanPlan::Ring& ring) const;
  // Asks for the final value of a carry in the memory of what the carry begins with, where that is an
  // input of the level whose heir needs the memory later.
  void share_memory_of_input(int u, const Node& node, int k);

  // True if each slot of stacked result j may lie anywhere, because only scans read it, a slot at a
  // time. False for long stacks: the packer would have too much to place.
  bool slots_apart(ValueId result, const ScanParams& p, size_t j) const;

  // Stacks of one scan that nobody needs contiguous lie in one buffer, interleaved: what iteration
  // i stacks stands together. So one scan's results can follow, slot by slot, where another's
  // (the residuals that it consumes) were; two whole stacks could not both do so.
  void plan_interleaved(const Node& node, ScanPlan& plan);

  void plan_stack(const Node& node, size_t j, ScanPlan& plan);
  // A stack belongs to whoever computes its slices.
  ProvenancePtr residual_provenance(const ScanPlan& plan, const ScanParams& p, size_t j,
                                    const Node& node) const;

  void plan_init(int u, const Node& node, int k, ScanPlan& plan);
  // True if nothing else needs the memory of a destination from the first write of `root` on.
  bool is_free_for(const Destination& d, ValueId root) const;

  // True if a node reads a part of the concatenation `root` by itself: that part may lie in `root`.
  bool reads_part(const Node& node, ValueId root) const;
  // True if a concatenation that has `root` as a part is read at position `at` or later.
  bool is_part_of_living(ValueId root, int at) const;

  void plan_body_outputs(const ScanParams& p, ScanPlan& plan);
  void emit_scan(int u);

  // ---- conds and whiles: lower_branch.cpp ----

  // The levels of a cond's branches, or of a while's condition and body.
  std::vector<std::unique_ptr<Level>>& levels_of(int u) const;

  // The number of the one operand that lies in the memory of `root`, all of it; -1 where there is
  // no such one.
  int sole_operand(const Node& node, ValueId root) const;

  // can_share() for a cond. A result may lie over an operand if every branch returns that operand
  // as the result, or has read it for the last time when it writes the result.
  bool cond_can_share(int u, ValueId v, ValueId root) const;
  // can_share() for a while loop.
  bool while_can_share(const Node& node, ValueId v, ValueId root) const;
  // True when `out` may take the memory of input `in`: it is that input, or it is written (where it
  // is made, or copied at the end) once the input has been read.
  bool may_become(ValueId in, ValueId out) const;

  // True if an operand dies here, so that the nested graphs may write over it.
  bool operand_dies(int u, const Node& node, size_t i, const std::vector<ValueId>& taken) const;

  void emit_cond(int u);

  // True if a window is a whole piece: the bytes that live and die as one. Each iteration begins a
  // carry anew, which would end the life of whatever lies beside it in its piece.
  bool is_piece(const View& view) const;
  // True if a window is a bit of a piece, and an input of this level is a bit of the same buffer. A
  // write to the window begins no life: later iterations are still to read what lies beside it.
  bool is_bit_beside_input(const View& view) const;

  // Each carry lies in one slot, for how often the loop runs is not known: what the body makes of
  // it is written there once the old value has been read, or copied there at the end.
  void emit_while(int u);

  void emit_while_body(const std::vector<View>& slots, std::vector<Instruction>& out,
                       const Node& node);

  // ---- concatenations: lower_concat.cpp ----

  void plan_concat(int u);

  // The window that the root of `v` must take for `v` to lie at `view`, if there is one.
  std::optional<View> root_view(ValueId v, View view) const;

  // Parts along the leading axis live and die one by one, and so do slices of those that a scan
  // stacks.
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

  // Strides of a result whose kernel takes any: those in which what reads it, if all see it through
  // the same transposes, reads row-major memory.
  Dims strides_for_readers(ValueId v) const;

  std::optional<ValueId> dying_operand(int u, ValueId v, const std::vector<ValueId>& taken) const;
  // True if v has been read when `heir` is written over it.
  bool dies_before(ValueId v, ValueId heir) const;

  void emit_rows(int u);
  // The kernel of a unit's first node: its inputs, and the programs that make those that are made in
  // passing; no outputs yet.
  Kernel op_kernel(int u) const;
  // True if a unit reads a value that lies exactly at `view`, other than its epilogue_output.
  bool is_read_by(const Unit& un, const View& view) const;
  ProvenancePtr unit_provenance(const Unit& un) const;
  void emit_op(int u);

  // Copies an operand that its kernel reads without strides, unless it is contiguous.
  void lay_out(const Node& node, size_t i, View& view);

  void emit_view_copy(int u);

  // True if a window has no gaps and begins at a disk block in every iteration, as the plan will
  // place it. Between two such windows a disk moves all but the ends of a span without a bounce
  // buffer.
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
  // The value to be written later in the memory of an input, or of a value that lies over one.
  std::vector<ValueId> heir_;
  // True for roots that are moved to another memory. A write over them waits for the move.
  std::vector<bool> is_moved_;
  std::vector<bool> sliced_only_;
  std::vector<bool> begun_;
  mutable std::vector<ValueId> overwritten_;  // stacks whose reader may write over their slots
  mutable std::map<int, std::unique_ptr<ScanPlan>> scans_;
  mutable std::map<int, std::vector<std::unique_ptr<Level>>> nested_;  // levels of conds and whiles
  std::vector<Instruction>* out_ = nullptr;
};

}  // namespace stow::lowering
