// Loops: rings of carries, stacks of results, slices of operands.
#include "stowage/passes/lower_level.h"

#include <algorithm>

#include "stowage/base/bytes.h"

namespace stow::lowering {
namespace {

// True if a carry never changes: it then stays where the initial value lies.
bool is_invariant(const ScanParams& p, const Graph& body, int64_t k) {
  return skip_passthrough(body, body.outputs()[static_cast<size_t>(k)]) ==
         body.inputs()[static_cast<size_t>(p.n_consts + k)];
}

// Returns the window of slice i of a stack along an axis.
View slot_view(View view, size_t axis, LoopId loop, const ScanParams& p) {
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

// The window of body input i, given that of the operand. Carries get theirs from the ring.
View body_input_view(const ScanParams& p, const Graph& body, size_t i, View view, LoopId loop) {
  const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
  if (i < static_cast<size_t>(p.n_consts)) return view;
  if (i < first_x) return contiguous_view(BufferId(), body.type(body.inputs()[i]));
  const size_t axis = static_cast<size_t>(p.in_axes[i - first_x]);
  return slot_view(std::move(view), axis, loop, p);
}

// The last iteration finds its carry in slot 0, the lowest. The loop has then stacked most, and its
// stacks fit better around a ring whose free slot is on the inner side. In a ring with a home, the
// last iteration leaves its carry in slot 0.
int64_t first_slot(const ScanPlan::Ring& ring, const ScanParams& p) {
  const int64_t last = ring.home ? p.length : std::max<int64_t>(p.length, 1) - 1;
  return (ring.depth - last % ring.depth) % ring.depth;
}

// The slot of a carry as iteration `version` finds it (version N is the final one).
int64_t ring_slot(const ScanPlan::Ring& ring, const ScanParams& p, int64_t version) {
  if (ring.stack >= 0) return p.reverse ? p.length - version : version;
  return (version + first_slot(ring, p)) % ring.depth;
}

bool is_at_home(const ScanPlan::Ring& ring, const ScanParams& p, int64_t version) {
  return ring.home && ring_slot(ring, p, version) == 0;
}

View ring_view(const ScanPlan::Ring& ring, const ScanParams& p, int64_t version) {
  if (is_at_home(ring, p, version)) return *ring.home;
  View view = ring.base;
  view.offset_bytes += ring_slot(ring, p, version) * ring.slot_bytes;
  return view;
}

// Returns the same view inside the loop: of the value that iteration i finds (ahead = 0) or leaves
// (ahead = 1).
View ring_view_in_loop(const ScanPlan::Ring& ring, const ScanParams& p, LoopId loop,
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

}  // namespace

ScanPlan& Level::open_scan(int u) const {
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
  // The order decides if a carry's memory may be overwritten. The search for an order takes it to
  // be free once the carry has been read.
  std::vector<bool> dying = plan->reusable;
  for (int k = 0; k < p.n_carries; ++k) dying[static_cast<size_t>(p.n_consts + k)] = true;
  plan->body = std::make_unique<Level>(context_, body, std::move(views), std::move(dying));
  return *plan;
}

void Level::plan_scan(int u) {
  const Node& node = graph_.node(unit(u).nodes[0]);
  const auto& p = node.as<ScanParams>();
  ScanPlan* const plan = &open_scan(u);
  Level& level = *plan->body;
  std::vector<bool>& reusable = plan->reusable;

  plan_over_operands(u, node, *plan);
  for (int k = 0; k < p.n_carries; ++k) share_memory_of_input(u, node, k);
  for (int k = 0; k < p.n_carries; ++k) plan->rings.push_back(plan_ring(node, k, *plan));
  // Carries in a ring of two or more may be overwritten once read; those in a ring of one only by
  // what they become.
  for (int k = 0; k < p.n_carries; ++k)
    reusable[static_cast<size_t>(p.n_consts + k)] =
        context_.options.reuse && plan->rings[static_cast<size_t>(k)].depth > 1 &&
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

int Level::sole_slices(const Node& scan, ValueId root) const {
  const auto& p = scan.as<ScanParams>();
  const size_t first_x = static_cast<size_t>(p.n_consts + p.n_carries);
  int found = -1;
  for (size_t i = 0; i < scan.operands.size(); ++i) {
    if (made_root(scan.operands[i]) != root) continue;
    if (found >= 0 || i < first_x || p.in_axes[i - first_x] != 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

bool Level::begins_with(const Node& scan, int k, ValueId root) const {
  const auto init = static_cast<size_t>(scan.as<ScanParams>().n_consts + k);
  for (size_t i = 0; i < scan.operands.size(); ++i)
    if (made_root(scan.operands[i]) == root && i != init) return false;
  return made_root(scan.operands[init]) == root && is_whole(scan.operands[init]);
}

bool Level::scan_can_share(int u, ValueId v, ValueId root) const {
  const Node& node = graph_.def(v);
  const auto& p = node.as<ScanParams>();
  const int j = graph_.value(v).index - p.n_carries;
  const ArrayType &tv = graph_.type(v), &tr = graph_.type(root);
  if (tv.kind != tr.kind || tv.elems() != tr.elems() ||
      dtype_bytes(tv.dtype) != dtype_bytes(tr.dtype))
    return false;
  if (j < 0) return begins_with(node, graph_.value(v).index, root);
  if (p.out_axes[static_cast<size_t>(j)] != 0 || p.length == 0) return false;
  const int operand = sole_slices(node, root);
  return operand >= 0 && is_whole(node.operands[static_cast<size_t>(operand)]) &&
         slices_can_share(u, operand, j);
}

bool Level::slices_can_share(int u, int i, int j) const {
  const Level& body = *open_scan(u).body;
  const auto& p = graph_.node(unit(u).nodes[0]).as<ScanParams>();
  const ValueId out = body.graph_.outputs()[static_cast<size_t>(p.n_carries + j)];
  const ValueId in = body.graph_.inputs()[static_cast<size_t>(i)];
  return !body.graph_.is_input(body.made_root(out)) && body.may_become(in, out);
}

void Level::plan_over_operands(int u, const Node& node, ScanPlan& plan) {
  const auto& p = node.as<ScanParams>();
  const auto first_x = static_cast<size_t>(p.n_consts + p.n_carries);
  std::vector<bool> taken(node.operands.size(), false);
  for (int j = 0; j < static_cast<int>(p.out_axes.size()); ++j) {
    const ValueId result = node.result(p.n_carries + j);
    const bool settled = has_destination(result);
    for (size_t i = first_x; context_.options.reuse && i < node.operands.size(); ++i) {
      const ValueId root = made_root(node.operands[i]);
      const bool possible = settled ? graph_.is_input(root) || has_destination(root)
                                    : may_choose_destination(u, root);
      if (taken[i] || !possible || !scan_can_share(u, result, root)) continue;
      // The body must not put another value there.
      plan.reusable[i] = false;
      taken[i] = true;
      if (settled) continue;
      const ArrayType& type = graph_.type(result);
      const BufferId buffer =
          context_.add_buffer(type.bytes(), node.provenance, "stacked", p.length, type.kind);
      set_destination(result, contiguous_view(buffer, type));
      set_destination(root, contiguous_view(buffer, graph_.type(root)));
      break;
    }
  }
}

bool Level::may_choose_destination(int u, ValueId root) const {
  if (graph_.is_input(root) || use(root).unit < 0 || storage_[root.index()] ||
      has_destination(root) || last_use_with_parts(root) != position(u))
    return false;
  const UnitKind kind = unit(use(root).unit).kind;
  return (kind == UnitKind::kRows || kind == UnitKind::kOp) && !use(root).splat;
}

bool Level::slices_die(int u, const Node& node, size_t i) const {
  if (!context_.options.reuse) return false;
  const ValueId root = use(node.operands[i]).root;
  if (use(root).unit < 0 || last_use_with_parts(root) != position(u)) return false;
  for (size_t j = 0; j < node.operands.size(); ++j)
    if (j != i && use(node.operands[j]).root == root) return false;
  if (use(node.operands[i]).canon != root) return false;
  // Other values may lie in the same memory: its parts, or a value that it is part of.
  if (reads_part(node, root) || is_part_of_living(root, position(u))) return false;
  overwritten_.push_back(root);
  return true;
}

ScanPlan::Ring Level::plan_ring(const Node& node, int k, ScanPlan& plan) {
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
  for (size_t j = 0; j < p.out_axes.size() && ring.stack < 0 && p.length > 0; ++j)
    if (level.use(body.outputs()[static_cast<size_t>(p.n_carries) + j]).canon == in &&
        p.out_axes[j] == 0 && !has_destination(node.result(p.n_carries + static_cast<int>(j))))
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
      // The carry is copied at the end of the body, after every read, unless another carry is read
      // there too.
      ring.depth = returned || level.graph().is_input(root) ? 2 : 1;
    } else {
      const bool shares = defined == last && level.can_share(level.use(root).unit, root, in);
      ring.depth = !returned && (defined > last || shares) ? 1 : 2;
    }
  }
  const ValueId result = node.result(k);
  if (has_home(result, ring)) {
    const View& home = destination(result);
    ring.home = contiguous_view(home.buffer, type, home.offset_bytes);
    ring.home->terms = home.terms;
    ring.base = *ring.home;
    if (ring.depth == 1) return ring;
    const BufferId slots = context_.add_buffer(ring.slot_bytes * ring.depth, node.provenance,
                                               "carry", ring.depth, type.kind);
    context_.schedule.buffers[slots.index()].independent_slots = true;
    context_.schedule.buffers[slots.index()].first_slot = home.buffer;
    ring.base = contiguous_view(slots, type);
    return ring;
  }
  bool independent =
      ring.stack >= 0 && may_have_independent_slots(node.result(p.n_carries + ring.stack), p,
                                                    static_cast<size_t>(ring.stack));
  if (ring.stack < 0 && ring.depth == 2 && context_.options.places_per_iteration && p.length > 1 &&
      ring.slot_bytes > 0 && context_.iterations() * (p.length + 1) <= kMaxPlaces) {
    ring.depth = p.length + 1;
    independent = true;
  }
  const BufferId buffer =
      context_.add_buffer(ring.slot_bytes * ring.depth, node.provenance,
                          ring.stack >= 0 ? "residual" : "carry", ring.depth, type.kind);
  ring.base = contiguous_view(buffer, type);
  context_.schedule.buffers[buffer.index()].independent_slots = independent;
  return ring;
}

bool Level::has_home(ValueId result, const ScanPlan::Ring& ring) const {
  const std::optional<Destination>& d = destinations_[result.index()];
  if (!context_.options.reuse || ring.stack >= 0 || !d || d->begin_group != kOwnLife ||
      ring.slot_bytes == 0 || !is_whole_slot(d->view))
    return false;
  if (ring.depth == 1) return true;
  const Buffer& buffer = context_.schedule.buffers[d->view.buffer.index()];
  return ring.depth == 2 && buffer.slots == 1 && !buffer.independent_slots && d->view.terms.empty();
}

void Level::share_memory_of_input(int u, const Node& node, int k) {
  const auto& p = node.as<ScanParams>();
  const ValueId result = node.result(k);
  const ValueId root = made_root(node.operands[static_cast<size_t>(p.n_consts + k)]);
  const ValueId next_occupant = next_occupant_[root.index()];
  if (is_invariant(p, *node.graphs[0], k) || has_destination(result) || !next_occupant.valid() ||
      !graph_.is_input(root) || last_use(root) != position(u) || !begins_with(node, k, root) ||
      use(result).unit != u || !dies_before(result, next_occupant))
    return;
  View view = contiguous_view(destination(next_occupant).buffer, graph_.type(result),
                              destination(next_occupant).offset_bytes);
  view.terms = destination(next_occupant).terms;
  set_destination(result, std::move(view), kOwnLife, root);
  next_occupant_[result.index()] = next_occupant;
}

bool Level::may_have_independent_slots(ValueId result, const ScanParams& p, size_t j) const {
  const int64_t iterations = context_.options.places_per_iteration ? context_.iterations() : 1;
  return context_.options.reuse && p.out_axes[j] == 0 && p.length > 1 &&
         iterations * p.length <= kMaxPlaces && sliced_only_[result.index()] &&
         !has_destination(result) && graph_.type(result).bytes() > 0;
}

void Level::plan_interleaved(const Node& node, ScanPlan& plan) {
  const auto& p = node.as<ScanParams>();
  plan.interleaved.assign(p.out_axes.size(), std::nullopt);
  std::vector<size_t> together;
  for (size_t j = 0; j < p.out_axes.size(); ++j) {
    const ValueId result = node.result(p.n_carries + static_cast<int>(j));
    const bool saves_carry = std::any_of(plan.rings.begin(), plan.rings.end(), [&](const auto& r) {
      return r.stack == static_cast<int>(j);
    });
    if (context_.options.reuse && p.out_axes[j] == 0 && !saves_carry && p.length > 1 &&
        !has_destination(result) && !use(result).needs_contiguous && last_use(result) != kForever &&
        graph_.type(result).bytes() > 0 && graph_.type(result).kind == MemoryKind::kDevice &&
        !may_have_independent_slots(result, p, j))
      together.push_back(j);
  }
  if (together.size() < 2) return;
  std::vector<int64_t> parts;
  int64_t slot_bytes = 0;
  for (size_t j : together) {
    parts.push_back(slot_bytes);
    const ArrayType& type = graph_.type(node.result(p.n_carries + static_cast<int>(j)));
    slot_bytes = align_up(slot_bytes + type.bytes() / p.length,
                          context_.options.target.alignment_bytes);
  }
  const bool residuals =
      static_cast<int>(together.back()) >= static_cast<int>(p.out_axes.size()) - p.n_residuals;
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

void Level::plan_stack(const Node& node, size_t j, ScanPlan& plan) {
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
    const bool residual =
        static_cast<int>(j) >= static_cast<int>(p.out_axes.size()) - p.n_residuals;
    const int64_t slots = p.out_axes[j] == 0 && type.bytes() > 0 ? p.length : 1;
    const BufferId buffer = context_.add_buffer(type.bytes(), residual_provenance(plan, p, j, node),
                                                residual ? "residual" : "stacked",
                                                std::max<int64_t>(slots, 1), type.kind);
    view = contiguous_view(buffer, type);
    context_.schedule.buffers[buffer.index()].independent_slots =
        may_have_independent_slots(result, p, j);
    reusable_[result.index()] = context_.options.reuse;
  }
  plan.stacks.push_back(view);
  storage_[result.index()] = std::move(view);
}

ProvenancePtr Level::residual_provenance(const ScanPlan& plan, const ScanParams& p, size_t j,
                                         const Node& node) const {
  const Graph& body = plan.body->graph();
  const ValueId v = body.outputs()[static_cast<size_t>(p.n_carries) + j];
  return body.is_input(v) ? node.provenance : body.def(v).provenance;
}

void Level::plan_init(int u, const Node& node, int k, ScanPlan& plan) {
  const auto& p = node.as<ScanParams>();
  ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
  const ValueId init = node.operands[static_cast<size_t>(p.n_consts + k)];
  const ValueId result = node.result(k);
  if (ring.invariant) return;  // its storage is the initial value's, known when emitted
  storage_[result.index()] = ring_view(ring, p, p.length);
  const ValueId root = made_root(init);
  const bool direct = use(init).canon == root || (use(init).splat && root == use(init).canon);
  if (!direct || use(root).unit < 0 || has_destination(root) || storage_[root.index()]) return;
  std::optional<ValueId> before = ValueId();
  if (is_at_home(ring, p, 0)) {
    const Destination& home = *destinations_[result.index()];
    if (!is_free_for(home, root)) return;
    before = home.before;
  }
  // A ring is overwritten, so nothing else may read the initial value at or after the loop.
  int readers_here = 0;
  for (ValueId v : node.operands) readers_here += made_root(v) == root;
  const bool private_value =
      last_use_with_parts(root) == position(u) && readers_here == 1 && !reads_part(node, root);
  if (readers_here != 1 || (ring.stack < 0 && !private_value)) return;
  // A saved initial value may be read later, unless a reader of the stack overwrites it.
  if (!private_value && std::find(overwritten_.begin(), overwritten_.end(),
                                  node.result(p.n_carries + ring.stack)) != overwritten_.end())
    return;
  if (last_use(root) == kForever) return;
  set_destination(root, ring_view(ring, p, 0), kOwnLife, before);
}

bool Level::is_free_for(const Destination& d, ValueId root) const {
  if (!d.before) return false;
  if (!d.before->valid()) return true;
  const int last = last_use(*d.before), defined = first_write(root);
  return last < defined || (last == defined && can_share(use(root).unit, root, *d.before));
}

bool Level::reads_part(const Node& node, ValueId root) const {
  if (use(root).unit < 0 || unit(use(root).unit).kind != UnitKind::kConcat) return false;
  for (ValueId part : graph_.def(root).operands) {
    for (ValueId v : node.operands)
      if (made_root(v) == made_root(part)) return true;
    if (reads_part(node, made_root(part))) return true;
  }
  return false;
}

bool Level::is_part_of_living(ValueId root, int at) const {
  for (const Unit& unit : units_.units) {
    if (unit.kind != UnitKind::kConcat) continue;
    const Node& node = graph_.node(unit.nodes[0]);
    const ValueId whole = node.first_result;
    for (ValueId part : node.operands)
      if (made_root(part) == root && (last_use(whole) >= at || is_part_of_living(whole, at)))
        return true;
  }
  return false;
}

void Level::plan_body_outputs(const ScanParams& p, ScanPlan& plan) {
  Level& level = *plan.body;
  const Graph& body = level.graph();
  for (int k = 0; k < p.n_carries; ++k) {
    const ScanPlan::Ring& ring = plan.rings[static_cast<size_t>(k)];
    const ValueId out = body.outputs()[static_cast<size_t>(k)];
    // A ring relies on a reshape being copied at the end.
    if (!ring.invariant && level.use(out).canon == level.made_root(out))
      level.request_output(out, ring_view_in_loop(ring, p, plan.loop, 1),
                           ring.depth > 1 ? ValueId()
                                          : body.inputs()[static_cast<size_t>(p.n_consts + k)]);
  }
  for (size_t j = 0; j < p.out_axes.size(); ++j)
    level.request_output(
        body.outputs()[static_cast<size_t>(p.n_carries) + j],
        slot_view(plan.stacks[j], static_cast<size_t>(p.out_axes[j]), plan.loop, p));
}

void Level::emit_scan(int u) {
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
    const View first = ring_view(ring, p, 0);
    if (!same_window(operand, first)) emit_copy(operand, first, true, node.provenance);
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

}  // namespace stow::lowering
