#include "stowage/passes/lower.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "stowage/base/bytes.h"
#include "stowage/core/disk_blocks.h"
#include "stowage/passes/first_slots.h"
#include "stowage/passes/fuse.h"
#include "stowage/passes/rows.h"
#include "stowage/passes/view.h"

namespace stow {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

// No group: a write begins the life of what it writes; kPieces: of its piece of a concatenation.
constexpr int kOwnLife = -1, kPieces = -2;
constexpr size_t kMaxPieces = 4096;
constexpr int64_t kMaxPlaces = 512;  // Of one buffer: slots and iterations that lie apart.

// Where a value is asked to lie.
struct Destination {
  View view;
  int begin_group = kOwnLife;  // parts of one concatenation share a group: the first written begins it
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
    View base;  // slot 0, without loop terms
    int64_t slot_bytes = 0;
    bool init_in_place = false;
  };
  std::vector<Ring> rings;
  std::vector<bool> reusable;  // body inputs whose memory the body may write over
  std::vector<View> stacks;    // whole stacked results
  std::vector<std::optional<View>> interleaved;  // those that share a buffer
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

  // What a nested graph takes while it runs, beside its inputs; known ones.
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
    if (context.iterations() * trip_count <= kMaxPlaces)
      context.each.push_back({loop, trip_count});
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
        std::vector<bool> input_reusable)
      : context_(context),
        graph_(graph),
        input_views_(std::move(input_views)),
        input_reusable_(std::move(input_reusable)) {
    units_ = fuse(graph, input_views_, context.options.fuse);
    destinations_.resize(graph.n_values());
    storage_.resize(graph.n_values());
    reusable_.resize(graph.n_values());
    set_inputs(input_views_);
    order();
  }

  const Units& units() const { return units_; }
  const Graph& graph() const { return graph_; }
  const ValueUse& use(ValueId v) const { return units_.uses[v.index()]; }
  int position(int unit) const { return position_[static_cast<size_t>(unit)]; }
  /// Where the memory of a root is read last, kForever for what the level returns.
  int last_use(ValueId root) const { return last_use_[root.index()]; }
  /// The same, parts of a concatenation that may lie in it and are read by themselves counted.
  int last_use_with_parts(ValueId root) const {
    int last = last_use(root);
    if (use(root).unit >= 0 && unit(use(root).unit).kind == UnitKind::kConcat)
      for (ValueId part : graph_.def(root).operands)
        last = std::max(last, last_use(made_root(part)));
    return last;
  }
  /// Where a root is written; -1 for inputs.
  int definition(ValueId root) const {
    const int unit = use(root).unit;
    return unit < 0 ? -1 : position(unit);
  }
  /// As definition(), but parts that are written where they belong in a concatenation count.
  int first_write(ValueId root) const {
    int first = definition(root);
    if (first < 0 || unit(use(root).unit).kind != UnitKind::kConcat) return first;
    for (ValueId part : graph_.def(root).operands)
      if (const int d = definition(made_root(part)); d >= 0) first = std::min(first, d);
    return first;
  }

  void set_destination(ValueId root, View view) {
    destinations_[root.index()] = Destination{std::move(view), kOwnLife};
  }
  bool has_destination(ValueId root) const { return destinations_[root.index()].has_value(); }

  /// True when v is all of its root in the same order: the root itself or a reshape of it.
  bool is_whole(ValueId v) const {
    const ValueId root = made_root(v);
    v = use(v).canon;
    while (v != root && !graph_.is_input(v) && graph_.def(v).op == OpKind::kReshape)
      v = use(graph_.def(v).operands[0]).canon;
    return v == root;
  }

  /// Asks for an output to be made in this window, where that can be; copy_to does the rest.
  void send_output(ValueId out, const View& view) {
    const ValueId root = made_root(out);
    if (use(out).canon == root && !graph_.is_input(root) && !has_destination(root) &&
        use(root).unit >= 0 && !storage_[root.index()] &&
        (is_contiguous(view) ||
         (!use(root).reshaped && unit(use(root).unit).kind != UnitKind::kCopy)))
      set_destination(root, view);
  }

  /// Real windows of the inputs; strides as told at construction.
  void set_inputs(const std::vector<View>& views) {
    input_views_ = views;
    for (size_t i = 0; i < views.size(); ++i) {
      storage_[graph_.inputs()[i].index()] = views[i];
      reusable_[graph_.inputs()[i].index()] = input_reusable_[i];
    }
  }
  void set_input_reusable(const std::vector<bool>& reusable) { input_reusable_ = reusable; }

  /// Destinations of what scans and concatenations are given, consumers before producers.
  void plan() {
    for (const Unit& unit : units_.units) {
      const Node& node = graph_.node(unit.nodes[0]);
      if (unit.kind == UnitKind::kScan) mark_whole_operands(node);
      if (unit.kind == UnitKind::kCond || unit.kind == UnitKind::kWhile)
        for (ValueId v : node.operands) units_.uses[use(v).root.index()].reshaped = true;
    }
    for (size_t i = order_.size(); i-- > 0;) {
      const int u = order_[i];
      if (unit(u).kind == UnitKind::kScan) plan_scan(u);
      if (unit(u).kind == UnitKind::kConcat) plan_concat(u);
    }
  }

  void emit(std::vector<Instruction>& out) {
    out_ = &out;
    for (int u : order_) emit_unit(u);
  }

  /// The window of any value whose root has been emitted.
  View access(ValueId v) const {
    if (storage_[v.index()]) return *storage_[v.index()];
    STOW_CHECK(!graph_.is_input(v), "input without storage");
    const Node& node = graph_.def(v);
    const size_t i = static_cast<size_t>(graph_.value(v).index);
    if (op_class(node.op) == OpClass::kIdentity) return access(node.operands[i]);
    if (node.op == OpKind::kScan && use(v).canon != v)  // a carry that is handed through
      return access(node.operands[static_cast<size_t>(node.as<ScanParams>().n_consts) + i]);
    STOW_CHECK(op_class(node.op) == OpClass::kView, "%{} of {} is read before it is made", v.value,
               op_name(node.op));
    const View in = access(node.operands[0]);
    std::optional<View> view = apply_view_op(graph_, node, in);
    STOW_CHECK(view, "a reshape met strides that it was not told of");
    return *view;
  }

  /// Copies a value to a window, unless it lies there.
  void copy_to(ValueId v, const View& to, const ProvenancePtr& provenance) {
    const View from = access(v);
    if (same_window(from, to)) return;
    emit_copy(from, to, true, provenance);
  }

  void emit_copy(const View& from, const View& to, bool begins, const ProvenancePtr& provenance) {
    Kernel kernel;
    const MemoryKind kind = kind_of(to);
    if (kind_of(from) == MemoryKind::kDevice && kind == MemoryKind::kDevice) {
      kernel.kind = KernelKind::kRows;
      kernel.op = OpKind::kConvert;
      kernel.program = std::make_shared<const RowProgram>(copy_program(from, to));
    } else {
      kernel.op = OpKind::kDevicePut;
      kernel.params = DevicePutParams{kind};
    }
    kernel.inputs = {from};
    kernel.outputs = {to};
    kernel.outputs[0].begins = begins;
    kernel.provenance = made_by(Pass::kLower, provenance);
    push(std::move(kernel));
  }

  MemoryKind kind_of(const View& view) const {
    return context_.schedule.buffers[view.buffer.index()].kind;
  }

  /// True when `unit` may write value `v` over the memory of `root`, which it reads.
  bool can_share(int u, ValueId v, ValueId root) const {
    const Unit& un = unit(u);
    if (un.kind == UnitKind::kScan) return scan_can_share(u, v, root);
    const ArrayType &tv = graph_.type(v), &tr = graph_.type(root);
    if (tv.shape != tr.shape || tv.kind != tr.kind ||
        dtype_bytes(tv.dtype) != dtype_bytes(tr.dtype))
      return false;
    const Node& def = graph_.def(v);
    if (un.kind == UnitKind::kOp && un.nodes.size() == 2) return root == sum_of(un);
    if (un.kind == UnitKind::kOp) {
      if (def.op != OpKind::kDynamicUpdateSlice && def.op != OpKind::kScatter &&
          def.op != OpKind::kScatterAdd && def.op != OpKind::kScatterMul &&
          def.op != OpKind::kScatterMin && def.op != OpKind::kScatterMax)
        return false;
      for (size_t i = 0; i < def.operands.size(); ++i)
        if (use(def.operands[i]).root == root && (i > 0 || use(def.operands[i]).canon != root))
          return false;
      return use(def.operands[0]).root == root;
    }
    if (un.kind == UnitKind::kCond) return cond_can_share(u, v, root);
    if (un.kind == UnitKind::kWhile) return while_can_share(def, v, root);
    if (un.kind != UnitKind::kRows || !un.axes.empty() || tv.shape.dims() != un.dims) return false;
    bool read = false;
    for (NodeId m : un.nodes)
      for (ValueId o : graph_.node(m).operands) {
        if (use(o).root != root) continue;
        if (use(o).canon != root) return false;
        read = true;
      }
    return read;
  }

 private:
  const Unit& unit(int u) const { return units_.units[static_cast<size_t>(u)]; }

  // The sum that a unit of a product and an addition adds to.
  ValueId sum_of(const Unit& un) const {
    const Node& add = graph_.node(un.nodes[1]);
    return add.operands[add.operands[0] == graph_.node(un.nodes[0]).first_result ? 1 : 0];
  }

  // What each value takes of the device while it lives; 0 for what lies elsewhere.
  std::vector<int64_t> value_bytes() const {
    std::vector<int64_t> bytes(graph_.n_values(), 0);
    for (size_t v = 0; v < bytes.size(); ++v) {
      const ValueId id(v);
      if (graph_.is_input(id) ? input_reusable_[static_cast<size_t>(graph_.value(id).index)]
                              : use(id).needed)
        bytes[v] = graph_.type(id).kind == MemoryKind::kDevice ? graph_.type(id).bytes() : 0;
    }
    return bytes;
  }

  void order() {
    order_ = order_units(graph_, units_, value_bytes(), scratch_bytes(), context_.options.order);
    position_.resize(units_.units.size());
    for (size_t i = 0; i < order_.size(); ++i)
      position_[static_cast<size_t>(order_[i])] = static_cast<int>(i);
    last_use_.assign(graph_.n_values(), -1);
    for (size_t u = 0; u < units_.units.size(); ++u)
      for (NodeId m : units_.units[u].nodes)
        for (ValueId v : graph_.node(m).operands) {
          int& last = last_use_[made_root(v).index()];
          last = std::max(last, position_[u]);
        }
    for (ValueId v : graph_.outputs()) last_use_[made_root(v).index()] = kForever;
    find_sliced_only();
  }

  // What a nested graph takes, in an order of its own.
  int64_t inner_bytes(const Graph& graph) const {
    if (const auto known = context_.inner_bytes.find(&graph); known != context_.inner_bytes.end())
      return known->second;
    std::vector<View> views;
    for (ValueId v : graph.inputs()) views.push_back(contiguous_view(BufferId(), graph.type(v)));
    const std::vector<bool> stay(views.size(), false);
    const Level level(context_, graph, std::move(views), stay);
    const int64_t bytes = peak_bytes(graph, level.units_, level.value_bytes(),
                                     level.scratch_bytes(), level.order_);
    context_.inner_bytes.emplace(&graph, bytes);
    return bytes;
  }

  // What each unit of one op takes beside what it reads and makes: a kernel's scratch, were every
  // value contiguous; what its nested graphs need.
  std::vector<int64_t> scratch_bytes() const {
    std::vector<int64_t> bytes(units_.units.size(), 0);
    const KernelTarget& target = context_.options.target;
    for (size_t u = 0; u < bytes.size(); ++u) {
      const Node& node = graph_.node(units_.units[u].nodes[0]);
      for (const auto& nested : node.graphs) bytes[u] = std::max(bytes[u], inner_bytes(*nested));
      if (units_.units[u].kind != UnitKind::kOp || !target.scratch_bytes) continue;
      Kernel kernel;
      kernel.op = node.op;
      kernel.params = node.params;
      for (ValueId v : node.operands) kernel.inputs.push_back(units_.windows[v.index()]);
      for (int i = 0; i < node.n_results; ++i)
        kernel.outputs.push_back(contiguous_view(BufferId(), graph_.type(node.result(i))));
      bytes[u] = target.scratch_bytes(kernel, target.threads);
    }
    return bytes;
  }

  // Roots that are read by scans alone, a slice of the leading axis at a time.
  void find_sliced_only() {
    sliced_only_.assign(graph_.n_values(), true);
    for (const Unit& un : units_.units)
      for (NodeId m : un.nodes) {
        const Node& node = graph_.node(m);
        for (size_t i = 0; i < node.operands.size(); ++i) {
          const ValueId v = node.operands[i], root = made_root(v);
          bool sliced = node.op == OpKind::kScan && use(v).canon == root;
          if (sliced) {
            const auto& p = node.as<ScanParams>();
            const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
            sliced = i >= first_x && p.in_axes[i - first_x] == 0;
          }
          if (!sliced) sliced_only_[root.index()] = false;
        }
      }
    for (ValueId v : graph_.outputs()) sliced_only_[made_root(v).index()] = false;
  }

  // The root whose memory a reader of v reads: a splat that was filled is its own root.
  ValueId made_root(ValueId v) const {
    return use(v).splat && use(use(v).canon).unit >= 0 ? use(v).canon : use(v).root;
  }

  // A body may reshape what it gets, so that must be contiguous: all of it, or, where slices of
  // the leading axis are handed in, each slice.
  void mark_whole_operands(const Node& scan) {
    const auto& p = scan.as<ScanParams>();
    const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    for (size_t i = 0; i < scan.operands.size(); ++i) {
      const ValueUse& u = use(scan.operands[i]);
      if (i < first_x || p.in_axes[i - first_x] != 0 || u.canon != u.root)
        units_.uses[u.root.index()].reshaped = true;
    }
  }

  // ---- scans ----

  // The body of a scan, ordered, and nothing planned yet.
  ScanPlan& open_scan(int u) const {
    std::unique_ptr<ScanPlan>& plan = scans_[u];
    if (plan) return *plan;
    const Node& node = graph_.node(unit(u).nodes[0]);
    const auto& p = node.as<ScanParams>();
    const Graph& body = *node.graphs[0];
    plan = std::make_unique<ScanPlan>();
    plan->loop = LoopId(context_.schedule.n_loops++);

    std::vector<View> views;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const View& window = units_.windows[node.operands[i].index()];
      const int64_t k = static_cast<int64_t>(i) - p.n_consts;
      const bool stays = k >= 0 && k < p.n_carries && is_invariant(p, body, k);
      views.push_back(stays ? window : body_input_view(p, body, i, window, plan->loop));
    }
    plan->reusable.assign(views.size(), false);
    for (size_t i = static_cast<size_t>(p.n_consts + p.n_carries); i < views.size(); ++i)
      plan->reusable[i] = slices_die(u, node, i);
    // Whether a carry's memory may be written over depends on the order; that takes it to be free
    // once the carry has been read.
    std::vector<bool> dying = plan->reusable;
    for (int k = 0; k < p.n_carries; ++k) dying[static_cast<size_t>(p.n_consts + k)] = true;
    plan->body = std::make_unique<Level>(context_, body, std::move(views), std::move(dying));
    return *plan;
  }

  void plan_scan(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    const auto& p = node.as<ScanParams>();
    ScanPlan* const plan = &open_scan(u);
    Level& level = *plan->body;
    std::vector<bool>& reusable = plan->reusable;

    plan_over_operands(u, node, *plan);
    for (int k = 0; k < p.n_carries; ++k) plan->rings.push_back(plan_ring(node, k, *plan));
    // Carries in a ring of two may be overwritten once read; those in a ring of one only by what
    // they become.
    for (int k = 0; k < p.n_carries; ++k)
      reusable[static_cast<size_t>(p.n_consts + k)] =
          context_.options.reuse && plan->rings[static_cast<size_t>(k)].depth == 2 &&
          plan->rings[static_cast<size_t>(k)].stack < 0;
    level.set_input_reusable(reusable);

    plan_interleaved(node, *plan);
    for (size_t j = 0; j < p.out_axes.size(); ++j) plan_stack(node, j, *plan);
    for (int k = 0; k < p.n_carries; ++k) plan_init(u, node, k, *plan);
    plan_body_outputs(p, *plan);
    {
      const InLoop inside(context_, plan->loop, p.length);
      level.plan();
    }
  }

  // The scanned operand, if there is one, that is all of `root`, of which the scan reads nothing
  // else, slice by slice of its leading axis; else -1.
  int sole_slices(const Node& scan, ValueId root) const {
    const auto& p = scan.as<ScanParams>();
    const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    int found = -1;
    for (size_t i = 0; i < scan.operands.size(); ++i) {
      if (made_root(scan.operands[i]) != root) continue;
      if (found >= 0 || i < first_x || p.in_axes[i - first_x] != 0 || !is_whole(scan.operands[i]))
        return -1;
      found = static_cast<int>(i);
    }
    return found;
  }

  // A stacked result may lie over a scanned operand where each iteration has read its slice when it
  // writes the result's.
  bool scan_can_share(int u, ValueId v, ValueId root) const {
    const Node& node = graph_.def(v);
    const auto& p = node.as<ScanParams>();
    const int j = graph_.value(v).index - p.n_carries;
    const ArrayType &tv = graph_.type(v), &tr = graph_.type(root);
    if (j < 0 || p.out_axes[static_cast<size_t>(j)] != 0 || p.length == 0 || tv.kind != tr.kind ||
        tv.elems() != tr.elems() || dtype_bytes(tv.dtype) != dtype_bytes(tr.dtype))
      return false;
    const int operand = sole_slices(node, root);
    if (operand < 0) return false;
    const Level& body = *open_scan(u).body;
    const ValueId out = body.graph_.outputs()[static_cast<size_t>(p.n_carries + j)];
    const ValueId in = body.graph_.inputs()[static_cast<size_t>(operand)];
    return !body.graph_.is_input(body.made_root(out)) && body.may_become(in, out);
  }

  // Stacked results that are to lie over scanned operands: where that was settled already, and over
  // what is made whole for this scan alone.
  void plan_over_operands(int u, const Node& node, ScanPlan& plan) {
    const auto& p = node.as<ScanParams>();
    const auto first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    std::vector<bool> taken(node.operands.size(), false);
    for (int j = 0; j < static_cast<int>(p.out_axes.size()); ++j) {
      const ValueId result = node.result(p.n_carries + j);
      const bool settled = has_destination(result);
      for (size_t i = first_x; context_.options.reuse && i < node.operands.size(); ++i) {
        const ValueId root = made_root(node.operands[i]);
        const bool possible =
            settled ? graph_.is_input(root) || has_destination(root) : may_be_sent(u, root);
        if (taken[i] || !possible || !scan_can_share(u, result, root)) continue;
        // The body must not put anything else there.
        plan.reusable[i] = false;
        taken[i] = true;
        if (settled) continue;
        const ArrayType& type = graph_.type(result);
        const BufferId buffer = context_.add_buffer(type.bytes(), node.provenance, "stacked",
                                                    p.length, type.kind);
        set_destination(result, contiguous_view(buffer, type));
        set_destination(root, contiguous_view(buffer, graph_.type(root)));
        break;
      }
    }
  }
  // Whether a value that unit u reads last can be made where u wants it.
  bool may_be_sent(int u, ValueId root) const {
    if (graph_.is_input(root) || use(root).unit < 0 || storage_[root.index()] ||
        has_destination(root) || last_use_with_parts(root) != position(u))
      return false;
    const UnitKind kind = unit(use(root).unit).kind;
    return (kind == UnitKind::kRows || kind == UnitKind::kOp) && !use(root).splat;
  }

  // Whether a carry never changes: it stays where the initial value lies.
  static bool is_invariant(const ScanParams& p, const Graph& body, int64_t k) {
    return handed_through(body, body.outputs()[static_cast<size_t>(k)]) ==
           body.inputs()[static_cast<size_t>(p.n_consts + k)];
  }

  // The window of body input i, given that of the operand. Carries get theirs from the ring.
  static View body_input_view(const ScanParams& p, const Graph& body, size_t i, View view,
                              LoopId loop) {
    const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    if (i < static_cast<size_t>(p.n_consts)) return view;
    if (i < first_x) return contiguous_view(BufferId(), body.type(body.inputs()[i]));
    const size_t axis = static_cast<size_t>(p.in_axes[i - first_x]);
    return slot_view(std::move(view), axis, loop, p);
  }

  // Slice i of a stack along an axis.
  static View slot_view(View view, size_t axis, LoopId loop, const ScanParams& p) {
    LoopTerm term;
    term.loop = loop;
    term.start = p.reverse ? p.length - 1 : 0;
    term.step = p.reverse ? -1 : 1;
    term.stride_bytes = view.strides[axis] * dtype_bytes(view.dtype);
    view.terms.push_back(term);
    view.dims.erase(view.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    view.strides.erase(view.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    return view;
  }

  // A scanned operand whose stack nothing reads after this scan, nor this scan twice.
  bool slices_die(int u, const Node& node, size_t i) const {
    if (!context_.options.reuse) return false;
    const ValueId root = use(node.operands[i]).root;
    if (use(root).unit < 0 || last_use_with_parts(root) != position(u)) return false;
    for (size_t j = 0; j < node.operands.size(); ++j)
      if (j != i && use(node.operands[j]).root == root) return false;
    if (use(node.operands[i]).canon != root) return false;
    overwritten_.push_back(root);
    return true;
  }

  ScanPlan::Ring plan_ring(const Node& node, int k, ScanPlan& plan) {
    const auto& p = node.as<ScanParams>();
    Level& level = *plan.body;
    const Graph& body = level.graph();
    const ValueId in = body.inputs()[static_cast<size_t>(p.n_consts + k)];
    const ValueId out = body.outputs()[static_cast<size_t>(k)];
    const ArrayType& type = body.type(in);
    ScanPlan::Ring ring;
    ring.slot_bytes = type.bytes();
    if (is_invariant(p, body, k)) {
      ring.invariant = true;
      return ring;
    }
    for (size_t j = 0; j < p.out_axes.size() && ring.stack < 0; ++j)
      if (level.use(body.outputs()[static_cast<size_t>(p.n_carries) + j]).canon == in &&
          p.out_axes[j] == 0 &&
          !has_destination(node.result(p.n_carries + static_cast<int>(j))))
        ring.stack = static_cast<int>(j);
    if (ring.stack >= 0) {
      ring.depth = p.length + 1;
    } else if (!context_.options.reuse) {
      ring.depth = 2;
    } else {
      const ValueId root = level.use(out).root;
      const int defined = level.first_write(root), last = level.last_use(in);
      const bool direct = level.use(out).canon == root && !level.graph().is_input(root);
      const bool returned = last == kForever;  // also a stacked result: copied at the end
      if (!direct) {
        // Copied at the end of the body, after every read, unless another carry is read there too.
        ring.depth = returned || level.graph().is_input(root) ? 2 : 1;
      } else {
        const bool shares = defined == last && level.can_share(level.use(root).unit, root, in);
        ring.depth = !returned && (defined > last || shares) ? 1 : 2;
      }
    }
    const BufferId buffer =
        context_.add_buffer(ring.slot_bytes * ring.depth, node.provenance,
                            ring.stack >= 0 ? "residual" : "carry", ring.depth, type.kind);
    ring.base = contiguous_view(buffer, type);
    if (ring.stack >= 0)
      context_.schedule.buffers[buffer.index()].apart =
          slots_apart(node.result(p.n_carries + ring.stack), p, static_cast<size_t>(ring.stack));
    return ring;
  }

  // The slot of a carry as iteration `version` finds it (version N is the final one).
  static int64_t ring_slot(const ScanPlan::Ring& ring, const ScanParams& p, int64_t version) {
    if (ring.stack >= 0) return p.reverse ? p.length - version : version;
    return (version + first_slot(ring, p)) % ring.depth;
  }
  // The last iteration finds its carry in slot 0, the lowest: what a loop stacks is most then, and
  // fits better around a ring that has its free slot on the inner side.
  static int64_t first_slot(const ScanPlan::Ring& ring, const ScanParams& p) {
    return (ring.depth - (std::max<int64_t>(p.length, 1) - 1) % ring.depth) % ring.depth;
  }
  static View ring_view(const ScanPlan::Ring& ring, const ScanParams& p, int64_t version) {
    View view = ring.base;
    view.offset_bytes += ring_slot(ring, p, version) * ring.slot_bytes;
    return view;
  }
  // The same inside the loop: what iteration i finds (ahead = 0) or leaves (ahead = 1).
  static View ring_view_in_loop(const ScanPlan::Ring& ring, const ScanParams& p, LoopId loop,
                                int64_t ahead) {
    View view = ring.base;
    if (ring.depth == 1) return view;
    LoopTerm term;
    term.loop = loop;
    term.stride_bytes = ring.slot_bytes;
    if (ring.stack >= 0) {
      term.start = p.reverse ? p.length - ahead : ahead;
      term.step = p.reverse ? -1 : 1;
    } else {
      term.start = ahead + first_slot(ring, p);
      term.modulo = ring.depth;
    }
    view.terms.push_back(term);
    return view;
  }

  // Slots that only scans read, one at a time, may lie anywhere. Long stacks stay whole, or the
  // packer would have too much to place.
  bool slots_apart(ValueId result, const ScanParams& p, size_t j) const {
    const int64_t iterations = context_.options.iterations_apart ? context_.iterations() : 1;
    return context_.options.reuse && p.out_axes[j] == 0 && p.length > 1 &&
           iterations * p.length <= kMaxPlaces && sliced_only_[result.index()] &&
           !has_destination(result) && graph_.type(result).bytes() > 0;
  }

  // Stacks of one scan that nobody needs contiguous lie in one buffer, interleaved: what iteration
  // i stacks stands together. So one scan's results can follow, slot by slot, where another's
  // (the residuals that it consumes) were; two whole stacks could not both do so.
  void plan_interleaved(const Node& node, ScanPlan& plan) {
    const auto& p = node.as<ScanParams>();
    plan.interleaved.assign(p.out_axes.size(), std::nullopt);
    std::vector<size_t> together;
    for (size_t j = 0; j < p.out_axes.size(); ++j) {
      const ValueId result = node.result(p.n_carries + static_cast<int>(j));
      const bool saves_carry = std::any_of(plan.rings.begin(), plan.rings.end(), [&](const auto& r) {
        return r.stack == static_cast<int>(j);
      });
      if (context_.options.reuse && p.out_axes[j] == 0 && !saves_carry && p.length > 1 &&
          !has_destination(result) && !use(result).reshaped && last_use(result) != kForever &&
          graph_.type(result).bytes() > 0 && graph_.type(result).kind == MemoryKind::kDevice &&
          !slots_apart(result, p, j))
        together.push_back(j);
    }
    if (together.size() < 2) return;
    std::vector<int64_t> parts;
    int64_t slot_bytes = 0;
    for (size_t j : together) {
      parts.push_back(slot_bytes);
      const ArrayType& type = graph_.type(node.result(p.n_carries + static_cast<int>(j)));
      slot_bytes = align_up(slot_bytes + type.bytes() / p.length, 64);
    }
    const bool residuals = static_cast<int>(together.back()) >=
                           static_cast<int>(p.out_axes.size()) - p.n_residuals;
    const BufferId buffer = context_.add_buffer(slot_bytes * p.length, node.provenance,
                                                residuals ? "residual" : "stacked", p.length);
    Buffer& b = context_.schedule.buffers[buffer.index()];
    b.parts = parts;
    for (size_t i = 0; i < together.size(); ++i) {
      const ArrayType& type = graph_.type(node.result(p.n_carries + static_cast<int>(together[i])));
      b.part_provenance.push_back(residual_provenance(plan, p, together[i], node));
      View view = contiguous_view(buffer, type, parts[i]);
      view.strides[0] = slot_bytes / dtype_bytes(type.dtype);
      plan.interleaved[together[i]] = std::move(view);
    }
  }

  void plan_stack(const Node& node, size_t j, ScanPlan& plan) {
    const auto& p = node.as<ScanParams>();
    const ValueId result = node.result(p.n_carries + static_cast<int>(j));
    const ArrayType& type = graph_.type(result);
    View view;
    const auto ring = std::find_if(plan.rings.begin(), plan.rings.end(),
                                   [&](const auto& r) { return r.stack == static_cast<int>(j); });
    if (ring != plan.rings.end()) {
      view = contiguous_view(ring->base.buffer, type, p.reverse ? ring->slot_bytes : 0);
    } else if (plan.interleaved[j]) {
      view = *plan.interleaved[j];
      reusable_[result.index()] = true;
    } else if (destinations_[result.index()]) {
      view = destinations_[result.index()]->view;
    } else {
      const bool residual = static_cast<int>(j) >=
                            static_cast<int>(p.out_axes.size()) - p.n_residuals;
      const int64_t slots = p.out_axes[j] == 0 && type.bytes() > 0 ? p.length : 1;
      const BufferId buffer =
          context_.add_buffer(type.bytes(), residual_provenance(plan, p, j, node),
                              residual ? "residual" : "stacked", std::max<int64_t>(slots, 1),
                              type.kind);
      view = contiguous_view(buffer, type);
      context_.schedule.buffers[buffer.index()].apart = slots_apart(result, p, j);
      reusable_[result.index()] = context_.options.reuse;
    }
    plan.stacks.push_back(view);
    storage_[result.index()] = std::move(view);
  }

  // A stack belongs to whoever computes its slices.
  ProvenancePtr residual_provenance(const ScanPlan& plan, const ScanParams& p, size_t j,
                                    const Node& node) const {
    const Graph& body = plan.body->graph();
    const ValueId v = body.outputs()[static_cast<size_t>(p.n_carries) + j];
    return body.is_input(v) ? node.provenance : body.def(v).provenance;
  }

  void plan_init(int u, const Node& node, int k, ScanPlan& plan) {
    const auto& p = node.as<ScanParams>();
    ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
    const ValueId init = node.operands[static_cast<size_t>(p.n_consts + k)];
    const ValueId result = node.result(k);
    if (ring.invariant) return;  // its storage is the initial value's, known when emitted
    storage_[result.index()] = ring_view(ring, p, p.length);
    const ValueId root = made_root(init);
    const bool direct = use(init).canon == root || (use(init).splat && root == use(init).canon);
    if (!direct || use(root).unit < 0 || has_destination(root) || storage_[root.index()] ||
        unit(use(root).unit).kind == UnitKind::kScan)
      return;
    // A ring is overwritten: nothing else may read the initial value at or after the loop.
    int readers_here = 0;
    for (ValueId v : node.operands) readers_here += made_root(v) == root;
    const bool private_value = last_use_with_parts(root) == position(u) && readers_here == 1 &&
                               !reads_part(node, root);
    if (readers_here != 1 || (ring.stack < 0 && !private_value)) return;
    // A saved initial value may be read later, unless whoever reads the stack writes over it.
    if (!private_value && std::find(overwritten_.begin(), overwritten_.end(),
                                    node.result(p.n_carries + ring.stack)) != overwritten_.end())
      return;
    if (last_use(root) == kForever) return;
    set_destination(root, ring_view(ring, p, 0));
    ring.init_in_place = true;
  }

  // Whether a node reads by itself what is a part of a concatenation, and may lie in it.
  bool reads_part(const Node& node, ValueId root) const {
    if (unit(use(root).unit).kind != UnitKind::kConcat) return false;
    for (ValueId part : graph_.def(root).operands)
      for (ValueId v : node.operands)
        if (made_root(v) == made_root(part)) return true;
    return false;
  }

  void plan_body_outputs(const ScanParams& p, ScanPlan& plan) {
    Level& level = *plan.body;
    const Graph& body = level.graph();
    for (int k = 0; k < p.n_carries; ++k) {
      const ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
      if (!ring.invariant)
        level.send_output(body.outputs()[static_cast<size_t>(k)],
                          ring_view_in_loop(ring, p, plan.loop, 1));
    }
    for (size_t j = 0; j < p.out_axes.size(); ++j)
      level.send_output(
          body.outputs()[static_cast<size_t>(p.n_carries) + j],
          slot_view(plan.stacks[j], static_cast<size_t>(p.out_axes[j]), plan.loop, p));
  }

  void emit_scan(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    const auto& p = node.as<ScanParams>();
    ScanPlan& plan = *scans_.at(u);
    Level& level = *plan.body;
    std::vector<View> views;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const int k = static_cast<int>(i) - p.n_consts;
      View operand = access(node.operands[i]);
      if (k < 0 || k >= p.n_carries) {
        views.push_back(body_input_view(p, level.graph(), i, std::move(operand), plan.loop));
        continue;
      }
      ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
      if (ring.invariant) {
        storage_[node.result(k).index()] = operand;
        views.push_back(std::move(operand));
        continue;
      }
      if (!ring.init_in_place)
        emit_copy(operand, ring_view(ring, p, 0), true, node.provenance);
      views.push_back(ring_view_in_loop(ring, p, plan.loop, 0));
    }
    if (p.length == 0) return;
    level.set_inputs(views);
    auto loop = std::make_shared<Loop>();
    loop->id = plan.loop;
    loop->trip_count = p.length;
    loop->provenance = node.provenance;
    const InLoop inside(context_, plan.loop, p.length);
    level.emit(loop->body);
    const Graph& body = level.graph();
    for (int k = 0; k < p.n_carries; ++k) {
      const ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
      if (!ring.invariant)
        level.copy_to(body.outputs()[static_cast<size_t>(k)],
                      ring_view_in_loop(ring, p, plan.loop, 1), node.provenance);
    }
    for (size_t j = 0; j < p.out_axes.size(); ++j)
      level.copy_to(body.outputs()[static_cast<size_t>(p.n_carries) + j],
                    slot_view(plan.stacks[j], static_cast<size_t>(p.out_axes[j]), plan.loop, p),
                    node.provenance);
    out_->push_back({std::move(loop)});
  }

  // ---- conds and whiles ----

  // The levels of a cond's branches, or of a while's condition and body.
  std::vector<std::unique_ptr<Level>>& levels_of(int u) const {
    auto [it, fresh] = nested_.try_emplace(u);
    if (!fresh) return it->second;
    const Node& node = graph_.node(unit(u).nodes[0]);
    for (size_t g = 0; g < node.graphs.size(); ++g) {
      const Graph& nested = *node.graphs[g];
      std::vector<View> views;
      for (size_t i = 0; i < nested.inputs().size(); ++i) {
        const size_t operand = operand_of_input(node, g, i);
        views.push_back(is_while_carry(node, operand)
                            ? contiguous_view(BufferId(), nested.type(nested.inputs()[i]))
                            : units_.windows[node.operands[operand].index()]);
      }
      std::vector<bool> reusable(views.size(), false);
      it->second.push_back(
          std::make_unique<Level>(context_, nested, std::move(views), std::move(reusable)));
    }
    return it->second;
  }
  static size_t first_while_carry(const Node& node) {
    const auto& p = node.as<WhileParams>();
    return static_cast<size_t>(p.n_cond_consts + p.n_body_consts);
  }
  static bool is_while_carry(const Node& node, size_t operand) {
    return node.op == OpKind::kWhile && operand >= first_while_carry(node);
  }
  // The operand that input i of nested graph g takes.
  static size_t operand_of_input(const Node& node, size_t g, size_t i) {
    if (node.op == OpKind::kCond) return 1 + i;
    const auto& p = node.as<WhileParams>();
    const auto n_consts = static_cast<size_t>(g == 0 ? p.n_cond_consts : p.n_body_consts);
    if (i >= n_consts) return first_while_carry(node) + i - n_consts;
    return g == 0 ? i : static_cast<size_t>(p.n_cond_consts) + i;
  }

  // The number of the one operand that lies in the memory of `root`, all of it; -1 where there is
  // no such one.
  int sole_operand(const Node& node, ValueId root) const {
    int found = -1;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (made_root(node.operands[i]) != root) continue;
      if (found >= 0 || use(node.operands[i]).canon != root) return -1;
      found = static_cast<int>(i);
    }
    return found;
  }

  // A branch's result may lie over an operand that every branch hands on as that result, or has
  // read for the last time when it is written.
  bool cond_can_share(int u, ValueId v, ValueId root) const {
    const Node& node = graph_.def(v);
    const int operand = sole_operand(node, root);
    if (operand < 1) return false;
    for (const std::unique_ptr<Level>& level : levels_of(u)) {
      const Graph& branch = level->graph();
      const ValueId in = branch.inputs()[static_cast<size_t>(operand - 1)];
      if (!level->may_become(in, branch.outputs()[static_cast<size_t>(graph_.value(v).index)]))
        return false;
    }
    return true;
  }
  bool while_can_share(const Node& node, ValueId v, ValueId root) const {
    const auto carry = first_while_carry(node) + static_cast<size_t>(graph_.value(v).index);
    return sole_operand(node, root) == static_cast<int>(carry);
  }
  // True when `out` may take the memory of input `in`: it is that input, or it is written (where it
  // is made, or copied at the end) once the input has been read.
  bool may_become(ValueId in, ValueId out) const {
    if (use(out).canon == in) return true;
    const int last = last_use(in);
    if (last == kForever) return false;
    const ValueId root = made_root(out);
    if (use(out).canon != root || graph_.is_input(root) || use(root).unit < 0) return true;
    const int defined = first_write(root);
    return defined > last || (defined == last && can_share(use(root).unit, root, in));
  }

  // Whether the nested graphs may write over an operand, which dies here.
  bool operand_dies(int u, const Node& node, size_t i, const std::vector<ValueId>& taken) const {
    const ValueId root = made_root(node.operands[i]);
    return context_.options.reuse && reusable_[root.index()] &&
           last_use_with_parts(root) == position(u) &&
           sole_operand(node, root) == static_cast<int>(i) &&
           std::find(taken.begin(), taken.end(), root) == taken.end();
  }

  void emit_cond(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    auto branch = std::make_shared<Branch>();
    branch->provenance = node.provenance;
    branch->index = access(node.operands[0]);
    std::vector<View> inputs;
    for (size_t i = 1; i < node.operands.size(); ++i) inputs.push_back(access(node.operands[i]));
    std::vector<ValueId> taken;
    for (int j = 0; j < node.n_results; ++j) {
      bool begins = true;
      branch->results.push_back(place_result(u, node.result(j), begins, taken));
    }
    std::vector<bool> reusable;
    for (size_t i = 1; i < node.operands.size(); ++i)
      reusable.push_back(operand_dies(u, node, i, taken));
    for (const std::unique_ptr<Level>& level : levels_of(u)) {
      const std::vector<ValueId>& outputs = level->graph().outputs();
      level->set_input_reusable(reusable);
      level->set_inputs(inputs);
      for (size_t j = 0; j < outputs.size(); ++j)
        level->send_output(outputs[j], branch->results[j]);
      level->plan();
      level->emit(branch->alternatives.emplace_back());
      for (size_t j = 0; j < outputs.size(); ++j)
        level->copy_to(outputs[j], branch->results[j], node.provenance);
    }
    out_->push_back({std::move(branch)});
  }

  // Whether a window is all of what lives and dies as one. A carry is begun anew in each iteration,
  // which would end the life of what lies beside it in its piece.
  bool is_piece(const View& view) const {
    const Buffer& buffer = context_.schedule.buffers[view.buffer.index()];
    const int64_t bytes = buffer.slots > 1 ? buffer.slot_bytes : buffer.bytes;
    return is_contiguous(view) && buffer.parts.size() == 1 &&
           view.elems() * dtype_bytes(view.dtype) == bytes;
  }

  // Each carry lies in one slot, for how often the loop runs is not known: what the body makes of
  // it is written there once the old value has been read, or copied there at the end.
  void emit_while(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    const size_t first_carry = first_while_carry(node);
    std::vector<ValueId> taken;
    std::vector<View> slots;
    std::vector<bool> results_begin;
    for (int k = 0; k < node.n_results; ++k) {
      const View init = access(node.operands[first_carry + static_cast<size_t>(k)]);
      bool begins = true;
      View slot = place_result(u, node.result(k), begins, taken);
      results_begin.push_back(begins);
      if (!is_piece(slot)) {
        slot = new_buffer(node.result(k), node);
        begins = true;
      }
      if (!same_window(init, slot)) emit_copy(init, slot, begins, node.provenance);
      slot.begins = false;
      slots.push_back(std::move(slot));
    }
    const auto inputs_of = [&](size_t g) {
      std::vector<View> views;
      for (size_t i = 0; i < node.graphs[g]->inputs().size(); ++i) {
        const size_t operand = operand_of_input(node, g, i);
        views.push_back(operand < first_carry ? access(node.operands[operand])
                                              : slots[operand - first_carry]);
      }
      return views;
    };
    auto loop = std::make_shared<Loop>();
    loop->id = LoopId(context_.schedule.n_loops++);
    loop->trip_count = Loop::kOpen;
    loop->provenance = node.provenance;
    Level &condition = *levels_of(u)[0], &body = *levels_of(u)[1];
    condition.set_inputs(inputs_of(0));
    condition.plan();
    condition.emit(loop->condition);
    loop->predicate = condition.access(condition.graph().outputs()[0]);
    loop->carries = slots;
    body.set_inputs(inputs_of(1));
    body.emit_while_body(slots, loop->body, node);
    out_->push_back({std::move(loop)});
    for (int k = 0; k < node.n_results; ++k) {
      const View& result = *storage_[node.result(k).index()];
      if (!same_window(slots[static_cast<size_t>(k)], result))
        emit_copy(slots[static_cast<size_t>(k)], result, results_begin[static_cast<size_t>(k)],
                  node.provenance);
    }
  }

  void emit_while_body(const std::vector<View>& slots, std::vector<Instruction>& out,
                       const Node& node) {
    const size_t first_carry = graph_.inputs().size() - slots.size();
    for (size_t k = 0; k < slots.size(); ++k) {
      const ValueId in = graph_.inputs()[first_carry + k], made = graph_.outputs()[k];
      if (use(made).canon != in && may_become(in, made)) send_output(made, slots[k]);
    }
    plan();
    emit(out);
    // Carries that become other carries are read before any is written.
    std::vector<std::optional<View>> saved(slots.size());
    for (size_t k = 0; k < slots.size(); ++k) {
      const ValueId made = graph_.outputs()[k];
      if (!graph_.is_input(made_root(made)) || same_window(access(made), slots[k])) continue;
      saved[k] = contiguous_view(
          context_.add_buffer(graph_.type(made).bytes(), node.provenance, "carry", 1,
                              graph_.type(made).kind),
          graph_.type(made));
      emit_copy(access(made), *saved[k], true, node.provenance);
    }
    for (size_t k = 0; k < slots.size(); ++k)
      if (!saved[k]) copy_to(graph_.outputs()[k], slots[k], node.provenance);
    for (size_t k = 0; k < slots.size(); ++k)
      if (saved[k]) emit_copy(*saved[k], slots[k], true, node.provenance);
  }

  // ---- concatenations ----

  void plan_concat(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    const ValueId result = node.first_result;
    const bool fresh = !has_destination(result);
    Destination& own = destination_of(result, node);
    if (fresh && context_.options.reuse)
      if (std::vector<int64_t> pieces = concat_pieces(node); pieces.size() > 1) {
        context_.schedule.buffers[own.view.buffer.index()].parts = std::move(pieces);
        own.begin_group = kPieces;
      }
    if (own.begin_group == kOwnLife) {
      own.begin_group = static_cast<int>(begun_.size());
      begun_.push_back(false);
    }
    const Destination whole = own;
    const bool in_pieces = whole.begin_group == kPieces;
    int64_t at = 0;
    for (ValueId part : node.operands) {
      const std::optional<View> view = root_view(part, part_view(whole.view, node, part, at));
      const ValueId root = use(part).root;
      const int maker = use(root).unit;
      if (!view || maker < 0 || has_destination(root) || storage_[root.index()] ||
          (use(root).reshaped && !is_contiguous(*view)) || last_use(root) == kForever)
        continue;
      const UnitKind kind = unit(maker).kind;
      const bool stacked =
          kind == UnitKind::kScan && in_pieces &&
          graph_.value(root).index >= graph_.def(root).as<ScanParams>().n_carries;
      if (kind == UnitKind::kRows || kind == UnitKind::kOp || stacked)
        destinations_[root.index()] = Destination{*view, whole.begin_group};
    }
  }

  // The window that the root of `v` must take for `v` to lie at `view`, if there is one.
  std::optional<View> root_view(ValueId v, View view) const {
    std::optional<View> at = std::move(view);
    while (at && use(v).root != v) {
      const Node& node = graph_.def(v);
      size_t i = 0;
      if (op_class(node.op) == OpClass::kView)
        at = invert_view_op(graph_, node, *at);
      else
        i = static_cast<size_t>(graph_.value(v).index) +
            (node.op == OpKind::kScan ? static_cast<size_t>(node.as<ScanParams>().n_consts) : 0);
      v = node.operands[i];
    }
    return at;
  }

  // Parts along the leading axis live and die one by one, and so do slices of those that a scan
  // stacks.
  std::vector<int64_t> concat_pieces(const Node& node) const {
    const size_t axis = static_cast<size_t>(node.as<AxisParams>().axis);
    const ArrayType& type = graph_.type(node.first_result);
    for (size_t a = 0; a < axis; ++a)
      if (type.shape.dims()[a] != 1) return {};
    std::vector<int64_t> pieces;
    int64_t at = 0;
    for (ValueId part : node.operands) {
      const ArrayType& t = graph_.type(part);
      const ValueId root = use(part).root;
      int64_t n = 1;
      if (!graph_.is_input(root) && graph_.def(root).op == OpKind::kScan && t.bytes() > 0)
        n = std::max<int64_t>(1, graph_.def(root).as<ScanParams>().length);
      if (t.bytes() % n != 0) n = 1;
      for (int64_t i = 0; i < n && t.bytes() > 0; ++i) pieces.push_back(at + t.bytes() / n * i);
      at += t.bytes();
    }
    return pieces.size() > kMaxPieces ? std::vector<int64_t>{} : pieces;
  }

  static View part_view(View view, const Node& node, ValueId, int64_t& at, int64_t extent) {
    const size_t axis = static_cast<size_t>(node.as<AxisParams>().axis);
    if (view.elems() > 0) view.offset_bytes += at * view.strides[axis] * dtype_bytes(view.dtype);
    view.dims[axis] = extent;
    at += extent;
    return view;
  }
  View part_view(View view, const Node& node, ValueId part, int64_t& at) const {
    return part_view(std::move(view), node, part, at,
                     graph_.type(part).shape[static_cast<int>(node.as<AxisParams>().axis)]);
  }

  Destination& destination_of(ValueId v, const Node& node) {
    std::optional<Destination>& d = destinations_[v.index()];
    if (!d) {
      d = Destination{new_buffer(v, node), kOwnLife};
      reusable_[v.index()] = context_.options.reuse;
    }
    return *d;
  }

  View new_buffer(ValueId v, const Node& node) {
    return contiguous_view(
        context_.add_buffer(graph_.type(v).bytes(), node.provenance, std::string(op_name(node.op)), 1,
                            graph_.type(v).kind),
        graph_.type(v));
  }

  void emit_concat(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    const Destination whole = destination_of(node.first_result, node);
    int64_t at = 0;
    bool parts_die = true;  // what is read by itself later must not be written over as a part
    for (ValueId part : node.operands) {
      const View to = part_view(whole.view, node, part, at);
      const View from = access(part);
      if (same_window(from, to)) {
        parts_die &= last_use(made_root(part)) <= position(u);
        continue;
      }
      emit_copy(from, to, begin(whole), node.provenance);
    }
    storage_[node.first_result.index()] = whole.view;
    // Where another reader wanted it, as a scan wants what it begins with, that one may keep it.
    if (!parts_die) reusable_[node.first_result.index()] = false;
  }

  bool begin(const Destination& d) {
    if (d.begin_group < 0) return true;
    const bool first = !begun_[static_cast<size_t>(d.begin_group)];
    begun_[static_cast<size_t>(d.begin_group)] = true;
    return first;
  }

  // ---- kernels ----

  void emit_unit(int u) {
    switch (unit(u).kind) {
      case UnitKind::kRows: emit_rows(u); break;
      case UnitKind::kOp: emit_op(u); break;
      case UnitKind::kConcat: emit_concat(u); break;
      case UnitKind::kCopy: emit_view_copy(u); break;
      case UnitKind::kScan: emit_scan(u); break;
      case UnitKind::kCond: emit_cond(u); break;
      case UnitKind::kWhile: emit_while(u); break;
    }
  }

  // Storage for a result; `begins` tells whether the write begins a new life of its memory.
  View place_result(int u, ValueId v, bool& begins, std::vector<ValueId>& taken) {
    const Node& node = graph_.def(v);
    begins = true;
    View view;
    if (const std::optional<Destination>& d = destinations_[v.index()]) {
      view = d->view;
      begins = begin(*d);
      // In place over an operand: its life goes on.
      for (NodeId m : unit(u).nodes)
        for (ValueId o : graph_.node(m).operands)
          if (storage_[use(o).root.index()] && same_window(*storage_[use(o).root.index()], view))
            begins = false;
    } else if (const std::optional<ValueId> root = dying_operand(u, v, taken)) {
      view = *storage_[root->index()];
      view.dtype = graph_.type(v).dtype;
      begins = false;
      taken.push_back(*root);
      reusable_[v.index()] = true;
    } else {
      view = new_buffer(v, node);
      reusable_[v.index()] = context_.options.reuse;
    }
    storage_[v.index()] = view;
    view.begins = begins;
    return view;
  }

  std::optional<ValueId> dying_operand(int u, ValueId v, const std::vector<ValueId>& taken) const {
    if (!context_.options.reuse) return std::nullopt;
    for (NodeId m : unit(u).nodes)
      for (ValueId o : graph_.node(m).operands) {
        const ValueId root = use(o).root;
        if (use(root).unit == u || !reusable_[root.index()] || !storage_[root.index()] ||
            last_use(root) != position(u) ||
            std::find(taken.begin(), taken.end(), root) != taken.end() || !can_share(u, v, root))
          continue;
        const View& view = *storage_[root.index()];
        if (use(v).reshaped && !is_contiguous(view)) continue;
        // What the program returns lies in a buffer of its own.
        if (last_use(v) == kForever && !(view.terms.empty() && is_contiguous(view))) continue;
        return root;
      }
    return std::nullopt;
  }

  void emit_rows(int u) {
    const Unit& un = unit(u);
    RowsBuilder builder(graph_, un, units_, u);
    const std::vector<ValueId> loads = builder.loads();
    std::vector<View> inputs;
    for (ValueId v : loads) inputs.push_back(access(v));
    Kernel kernel;
    kernel.kind = KernelKind::kRows;
    std::vector<ValueId> taken;
    std::vector<View> outputs;
    const auto place = [&](ValueId v) {
      bool begins = true;
      return place_result(u, v, begins, taken);
    };
    for (ValueId v : builder.empty()) place(v);
    for (ValueId v : builder.stores()) outputs.push_back(place(v));
    if (outputs.empty()) return;
    kernel.program = std::make_shared<const RowProgram>(builder.build(inputs, outputs));
    kernel.op = graph_.node(un.nodes.back()).op;
    kernel.inputs = std::move(inputs);
    kernel.outputs = std::move(outputs);
    kernel.provenance = unit_provenance(un);
    push(std::move(kernel));
  }

  ProvenancePtr unit_provenance(const Unit& un) const {
    // The last node whose place in the source is known, else the last.
    for (size_t i = un.nodes.size(); i-- > 0;)
      if (!source_path(graph_.node(un.nodes[i]).provenance).empty())
        return graph_.node(un.nodes[i]).provenance;
    return graph_.node(un.nodes.back()).provenance;
  }

  void emit_op(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    Kernel kernel;
    kernel.op = node.op;
    kernel.params = node.params;
    kernel.provenance = node.provenance;
    for (ValueId v : node.operands) kernel.inputs.push_back(access(v));
    if (node.op == OpKind::kAttentionGrad) lay_out(node, 4, kernel.inputs[4]);
    std::vector<ValueId> taken;
    if (unit(u).nodes.size() == 2) {
      const View sum = access(sum_of(unit(u)));
      bool begins = true;
      View out = place_result(u, graph_.node(unit(u).nodes[1]).first_result, begins, taken);
      if (!same_window(sum, out)) emit_copy(sum, out, begins, node.provenance);
      out.begins = false;
      kernel.inputs.push_back(out);
      kernel.outputs.push_back(std::move(out));
      push(std::move(kernel));
      return;
    }
    for (int i = 0; i < node.n_results; ++i) {
      bool begins = true;
      kernel.outputs.push_back(place_result(u, node.result(i), begins, taken));
    }
    push(std::move(kernel));
  }

  // Copies an operand that its kernel reads without strides, unless it is contiguous.
  void lay_out(const Node& node, size_t i, View& view) {
    if (is_contiguous(view)) return;
    const View to = new_buffer(node.operands[i], node);
    emit_copy(view, to, true, node.provenance);
    view = to;
  }

  void emit_view_copy(int u) {
    const Node& node = graph_.node(unit(u).nodes[0]);
    // A reshape whose operand has no fitting strides: the operand is laid out first.
    bool begins = true;
    std::vector<ValueId> none;
    const View to = place_result(u, node.first_result, begins, none);
    View laid_out = to;
    const View from = access(node.operands[0]);
    laid_out.dims = from.dims;
    laid_out.strides = contiguous_strides(Shape(from.dims));
    STOW_CHECK(is_contiguous(to), "a copied reshape must be contiguous");
    emit_copy(from, laid_out, begins, node.provenance);
  }

  // A window that begins on a block in every iteration, as the plan will place it, and has no gaps:
  // between two of those a disk moves all but the ends of a span without a bounce.
  bool lies_on_blocks(const View& view) const {
    const Buffer& b = context_.schedule.buffers[view.buffer.index()];
    const auto fits = [](int64_t bytes) { return bytes % kDiskBlockBytes == 0; };
    // An argument in memory lies where its maker put it.
    if (b.role != BufferRole::kTemporary && b.kind != MemoryKind::kDisk) return false;
    return is_contiguous(view) && fits(view.offset_bytes) &&
           disk_alignment(b.slots > 1 ? b.slot_bytes : b.bytes) == kDiskBlockBytes &&
           std::all_of(view.terms.begin(), view.terms.end(),
                       [&](const LoopTerm& t) { return fits(t.stride_bytes); });
  }

  void push(Kernel kernel) {
    // Windows without elements have no strides to speak of.
    if (std::all_of(kernel.outputs.begin(), kernel.outputs.end(),
                    [](const View& v) { return v.elems() == 0; }))
      return;
    const KernelTarget& target = context_.options.target;
    if (target.scratch_bytes) kernel.scratch_bytes = target.scratch_bytes(kernel, target.threads);
    MemoryKind kind = MemoryKind::kDevice;
    if (kernel.op == OpKind::kDevicePut && (kind_of(kernel.inputs[0]) == MemoryKind::kDisk ||
                                            kind_of(kernel.outputs[0]) == MemoryKind::kDisk)) {
      kind = MemoryKind::kPinnedHost;
      const View& moved = kernel.outputs[0];
      const int64_t bytes = moved.elems() * dtype_bytes(moved.dtype);
      // From disk to disk there is no memory but the bounce; else it may serve the ends of spans alone.
      constexpr int64_t kBetweenDisks = 31 * kDiskBlockBytes;
      const bool between_disks = kind_of(kernel.inputs[0]) == kind_of(kernel.outputs[0]);
      const bool direct = lies_on_blocks(kernel.inputs[0]) && lies_on_blocks(kernel.outputs[0]);
      kernel.scratch_bytes = disk_bounce_bytes(between_disks ? std::min(bytes, kBetweenDisks)
                                               : direct      ? 0
                                                             : bytes);
    }
    if (kernel.scratch_bytes > 0)
      kernel.scratch =
          context_.add_buffer(kernel.scratch_bytes, kernel.provenance, "scratch", 1, kind);
    out_->push_back({std::move(kernel)});
  }

  Context& context_;
  const Graph& graph_;
  std::vector<View> input_views_;
  std::vector<bool> input_reusable_;
  Units units_;
  std::vector<int> order_, position_, last_use_;
  std::vector<std::optional<Destination>> destinations_;
  std::vector<std::optional<View>> storage_;
  std::vector<bool> reusable_;
  std::vector<bool> sliced_only_;
  std::vector<bool> begun_;
  mutable std::vector<ValueId> overwritten_;  // stacks whose reader may write over their slots
  mutable std::map<int, std::unique_ptr<ScanPlan>> scans_;
  mutable std::map<int, std::vector<std::unique_ptr<Level>>> nested_;  // of conds and whiles
  std::vector<Instruction>* out_ = nullptr;

  friend class Program;
};

// The program's own level: arguments, donation, results.
class Program {
 public:
  Program(const Graph& graph, const LowerOptions& options) : context_{{}, options}, graph_(graph) {}

  Schedule run() {
    std::vector<View> inputs;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ArrayType& type = graph_.type(graph_.inputs()[i]);
      const BufferId buffer =
          context_.add_buffer(type.bytes(), nullptr, graph_.input_names()[i], 1, type.kind);
      Buffer& b = context_.schedule.buffers[buffer.index()];
      b.role = BufferRole::kInput;
      b.index = static_cast<int>(i);
      inputs.push_back(contiguous_view(buffer, type));
    }
    context_.schedule.inputs = inputs;
    Level level(context_, graph_, inputs, std::vector<bool>(inputs.size(), false));
    assign_donations(level);
    level.plan();
    level.emit(context_.schedule.instructions);
    finish(level);
    if (context_.options.reuse) share_first_slots(context_.schedule);
    return std::move(context_.schedule);
  }

 private:
  bool donated(size_t i) const {
    const std::vector<bool>& d = context_.options.donated;
    return i < d.size() && d[i] && !taken_[i];
  }

  // Pairs results with donated arguments: an argument that is a result stays where it is; else in
  // place where the last reader makes the result, or where the argument is dead before the result
  // is begun.
  void assign_donations(Level& level) {
    taken_.assign(graph_.inputs().size(), false);
    returned_ = taken_;
    if (!context_.options.reuse) return;
    for (ValueId out : graph_.outputs()) {
      const ValueId root = level.made_root(out);
      if (!graph_.is_input(root) || !(graph_.type(root) == graph_.type(out))) continue;
      const auto i = static_cast<size_t>(graph_.value(root).index);
      if (donated(i)) taken_[i] = returned_[i] = true;
    }
    for (const bool in_place : {true, false})
      for (ValueId out : graph_.outputs()) {
        const ValueId root = level.made_root(out);
        if (!level.is_whole(out) || level.use(root).unit < 0 || level.has_destination(root))
          continue;
        const int u = level.use(root).unit;
        for (size_t i = 0; i < graph_.inputs().size(); ++i) {
          const ValueId in = graph_.inputs()[i];
          if (!donated(i) || !(graph_.type(in) == graph_.type(out))) continue;
          const bool fits = in_place ? level.last_use(in) == level.position(u) &&
                                           level.can_share(u, root, in)
                                     : level.last_use(in) < level.first_write(root);
          if (!fits) continue;
          level.set_destination(
              root, contiguous_view(context_.schedule.inputs[i].buffer, graph_.type(root)));
          taken_[i] = true;
          break;
        }
      }
  }

  void finish(Level& level) {
    std::vector<Buffer>& buffers = context_.schedule.buffers;
    std::vector<bool> claimed(buffers.size(), false);
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const ValueId v = graph_.outputs()[o];
      const ArrayType& type = graph_.type(v);
      View view = level.access(v);
      const Buffer& at = buffers[view.buffer.index()];
      const ValueId root = level.made_root(v);
      const bool whole = is_contiguous(view) && view.terms.empty() && view.offset_bytes == 0 &&
                         at.bytes == type.bytes() && !claimed[view.buffer.index()];
      const bool in_argument =
          at.role == BufferRole::kInput &&
          (level.has_destination(root) || returned_[static_cast<size_t>(at.index)]);
      if (whole && (at.role == BufferRole::kTemporary || in_argument)) {
        claimed[view.buffer.index()] = true;
      } else {
        const ProvenancePtr provenance =
            graph_.is_input(v) ? nullptr : graph_.def(v).provenance;
        const View to = contiguous_view(
            context_.add_buffer(type.bytes(), provenance, "output", 1, type.kind), type);
        claimed.push_back(true);
        level.emit_copy(view, to, true, provenance);
        claimed.resize(buffers.size(), false);
        view = to;
      }
      Buffer& b = buffers[view.buffer.index()];
      if (b.role == BufferRole::kTemporary) {
        b.role = BufferRole::kOutput;
        b.index = static_cast<int>(o);
      }
      view.begins = false;
      context_.schedule.outputs.push_back(std::move(view));
    }
    int64_t bytes = 0;
    for (const Buffer& b : buffers)
      if (b.role == BufferRole::kOutput) bytes += b.bytes;
    for (Buffer& b : buffers)
      b.separate = b.role == BufferRole::kOutput && bytes <= kSeparateOutputBytes;
  }

  Context context_;
  const Graph& graph_;
  std::vector<bool> taken_, returned_;
};

}  // namespace

Schedule lower(const Graph& graph, const LowerOptions& options) {
  return Program(graph, options).run();
}

}  // namespace stow
