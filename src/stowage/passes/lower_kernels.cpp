// Emits kernels for units.
#include "stowage/passes/lower_level.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/core/disk_blocks.h"
#include "stowage/ops/effects.h"
#include "stowage/passes/rows.h"

namespace stow::lowering {

void Level::emit_unit(int u) {
  switch (unit(u).kind) {
    case UnitKind::kRows:
      emit_rows(u);
      break;
    case UnitKind::kOp:
      emit_op(u);
      break;
    case UnitKind::kConcat:
      emit_concat(u);
      break;
    case UnitKind::kCopy:
      emit_view_copy(u);
      break;
    case UnitKind::kScan:
      emit_scan(u);
      break;
    case UnitKind::kCond:
      emit_cond(u);
      break;
    case UnitKind::kWhile:
      emit_while(u);
      break;
  }
}

View Level::place_result(int u, ValueId v, bool& begins, std::vector<ValueId>& taken) {
  const Node& node = graph_.def(v);
  begins = true;
  View view;
  if (const std::optional<Destination>& d = destinations_[v.index()]) {
    view = d->view;
    begins = begin(*d) && !shares_slot_with_input(view);
    // A result in place over an operand continues the operand's lifetime.
    if (is_read_by(unit(u), view)) begins = false;
  } else if (const std::optional<ValueId> root = dying_operand(u, v, taken)) {
    view = *storage_[root->index()];
    view.dtype = graph_.type(v).dtype;
    begins = false;
    taken.push_back(*root);
    next_occupant_[v.index()] = next_occupant_[root->index()];
    reusable_[v.index()] = !next_occupant_[v.index()].valid();
  } else {
    view = new_buffer(v, node);
    if (node.op == OpKind::kConvolution) view.strides = strides_for_readers(v);
    reusable_[v.index()] = context_.options.reuse;
  }
  storage_[v.index()] = view;
  view.begins_lifetime = begins;
  return view;
}

Dims Level::strides_for_readers(ValueId v) const {
  const Dims contiguous = contiguous_strides(graph_.type(v).shape);
  if (use(v).needs_contiguous) return contiguous;
  // The transposes between the value and what reads it.
  std::vector<const Node*> transposes;
  for (ValueId at = v;; at = transposes.back()->first_result) {
    const Node* next = nullptr;
    bool others = false;
    for (const Node& node : graph_.nodes())
      for (ValueId o : node.operands) {
        if (use(o).canon != use(at).canon || op_class(node.op) == OpClass::kIdentity) continue;
        if (node.op != OpKind::kTranspose || (next && !(next->params == node.params)))
          others = true;
        else if (!next) next = &node;
      }
    for (ValueId o : graph_.outputs()) others = others || use(o).canon == use(at).canon;
    if (others || !next) break;
    transposes.push_back(next);
  }
  if (transposes.empty()) return contiguous;
  View view = contiguous_view(BufferId(), graph_.type(transposes.back()->first_result));
  for (size_t i = transposes.size(); i-- > 0;) view = *invert_view_op(graph_, *transposes[i], view);
  return view.strides;
}

std::optional<ValueId> Level::dying_operand(int u, ValueId v,
                                            const std::vector<ValueId>& taken) const {
  if (!context_.options.reuse) return std::nullopt;
  for (NodeId m : unit(u).nodes)
    for (ValueId o : graph_.node(m).operands) {
      const ValueId root = use(o).root, next_occupant = next_occupant_[root.index()];
      const bool may_lie_there =
          next_occupant.valid() ? !is_moved_[root.index()] && dies_before(v, next_occupant)
                                : static_cast<bool>(reusable_[root.index()]);
      if (use(root).unit == u || !may_lie_there || !storage_[root.index()] ||
          last_use(root) != position(u) ||
          std::find(taken.begin(), taken.end(), root) != taken.end() || !can_share(u, v, root))
        continue;
      const View& view = *storage_[root.index()];
      if (use(v).needs_contiguous && !is_contiguous(view)) continue;
      // Results of the program lie in buffers of their own.
      if (last_use(v) == kForever && !(view.terms.empty() && is_contiguous(view))) continue;
      return root;
    }
  return std::nullopt;
}

bool Level::dies_before(ValueId v, ValueId next_occupant) const {
  const int last = last_use_with_parts(v);
  if (v == next_occupant || last == kForever) return false;
  if (last < first_write(next_occupant)) return true;
  const int u = use(next_occupant).unit;
  return last == first_write(next_occupant) && last == position(u) &&
         unit(u).kind != UnitKind::kScan && unit(u).kind != UnitKind::kConcat &&
         can_share(u, next_occupant, v);
}

void Level::emit_rows(int u) {
  const Unit& un = unit(u);
  RowsBuilder builder(graph_, un, units_, u);
  const bool follows = un.epilogue_output.valid();
  std::vector<View> inputs;
  for (ValueId v : builder.loads())
    inputs.push_back(follows && inputs.empty() ? View() : access(v));
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
  if (follows) {
    const Node& product = graph_.node(un.nodes[0]);
    Kernel made = op_kernel(u);
    inputs[0] = outputs[0];
    inputs[0].begins_lifetime = false;
    if (!is_read_by(un, outputs[0])) {
      made.program = std::make_shared<const RowProgram>(builder.build(inputs, outputs));
      made.inputs.insert(made.inputs.end(), inputs.begin() + 1, inputs.end());
      made.outputs = std::move(outputs);
      return push(std::move(made));
    }
    // The epilogue's output overwrites an operand of the unit, so the product is a kernel of its
    // own, with a result elsewhere.
    inputs[0] = new_buffer(product.first_result, product);
    made.outputs = {inputs[0]};
    made.outputs[0].begins_lifetime = true;
    push(std::move(made));
  }
  kernel.program = std::make_shared<const RowProgram>(builder.build(inputs, outputs));
  kernel.op = follows ? graph_.def(un.epilogue_output).op : graph_.node(un.nodes.back()).op;
  kernel.inputs = std::move(inputs);
  kernel.outputs = std::move(outputs);
  kernel.provenance = unit_provenance(un);
  push(std::move(kernel));
}

Kernel Level::op_kernel(int u) const {
  const Unit& un = unit(u);
  const Node& node = graph_.node(un.nodes[0]);
  Kernel kernel;
  kernel.op = node.op;
  kernel.params = node.params;
  kernel.provenance = node.provenance;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (i >= 2 || !un.prologues[i].value.valid()) {
      kernel.inputs.push_back(access(node.operands[i]));
      continue;
    }
    const Unit maker = prologue_unit(graph_, un, i);
    const RowsBuilder builder(graph_, maker, units_, u, un.prologues[i].value);
    std::vector<View> inputs;
    for (ValueId v : builder.loads()) inputs.push_back(access(v));
    const View whole = contiguous_view(BufferId(), graph_.type(un.prologues[i].value));
    kernel.prologues[i] = {std::make_shared<const RowProgram>(builder.build(inputs, {whole})),
                           whole};
    kernel.inputs.insert(kernel.inputs.end(), inputs.begin(), inputs.end());
  }
  return kernel;
}

bool Level::is_read_by(const Unit& un, const View& view) const {
  for (NodeId m : un.nodes)
    for (ValueId o : graph_.node(m).operands)
      if (const std::optional<View>& at = storage_[use(o).root.index()];
          at && use(o).root != un.epilogue_output && same_window(*at, view))
        return true;
  return false;
}

ProvenancePtr Level::unit_provenance(const Unit& un) const {
  // The last node with a known place in the source, else the last node.
  for (size_t i = un.nodes.size(); i-- > 0;)
    if (!source_path(graph_.node(un.nodes[i]).provenance).empty())
      return graph_.node(un.nodes[i]).provenance;
  return graph_.node(un.nodes.back()).provenance;
}

void Level::emit_op(int u) {
  const Node& node = graph_.node(unit(u).nodes[0]);
  Kernel kernel = op_kernel(u);
  if (node.op == OpKind::kAttentionGrad) lay_out(node, 4, kernel.inputs[4]);
  std::vector<ValueId> taken;
  if (adds_to_sum(unit(u))) {
    const View sum = access(sum_of(unit(u)));
    bool begins = true;
    View out = place_result(u, graph_.node(unit(u).nodes[1]).first_result, begins, taken);
    if (!same_window(sum, out)) emit_copy(sum, out, begins, node.provenance);
    out.begins_lifetime = false;
    kernel.inputs.push_back(out);
    kernel.outputs.push_back(std::move(out));
    push(std::move(kernel));
    return;
  }
  kernel.outputs.resize(static_cast<size_t>(node.n_results));
  const bool sorts = node.op == OpKind::kSort;
  for (int k = 0; k < node.n_results; ++k) {
    const int i = sorts ? node.n_results - 1 - k : k;
    View& out = kernel.outputs[static_cast<size_t>(i)];
    if (sorts && k > 0 && lies_under(node.result(i), node.result(i + 1))) {
      View& later = kernel.outputs[static_cast<size_t>(i) + 1];
      out = later;
      out.dtype = graph_.type(node.result(i)).dtype;
      later.begins_lifetime = false;
      storage_[node.result(i).index()] = out;
      continue;
    }
    bool begins = true;
    out = place_result(u, node.result(i), begins, taken);
  }
  push(std::move(kernel));
}

bool Level::lies_under(ValueId v, ValueId later) const {
  return context_.options.reuse && last_use(v) < 0 && !has_destination(v) &&
         is_contiguous(*storage_[later.index()]) &&
         graph_.type(v).kind == graph_.type(later).kind &&
         graph_.type(v).bytes() <= graph_.type(later).bytes();
}

void Level::lay_out(const Node& node, size_t i, View& view) {
  if (is_contiguous(view)) return;
  const View to = new_buffer(node.operands[i], node);
  emit_copy(view, to, true, node.provenance);
  view = to;
}

void Level::emit_view_copy(int u) {
  const Node& node = graph_.node(unit(u).nodes[0]);
  // If the operand's strides do not fit the reshape, the operand is copied to contiguous memory
  // first.
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

bool Level::lies_on_blocks(const View& view) const {
  const Buffer& b = context_.schedule.buffers[view.buffer.index()];
  const auto fits = [](int64_t bytes) { return bytes % kDiskBlockBytes == 0; };
  // An argument in memory has the alignment that its maker gave it.
  if (b.role != BufferRole::kTemporary && b.kind != MemoryKind::kDisk) return false;
  return is_contiguous(view) && fits(view.offset_bytes) &&
         disk_alignment(b.slots > 1 ? b.slot_bytes : b.bytes) == kDiskBlockBytes &&
         std::all_of(view.terms.begin(), view.terms.end(),
                     [&](const LoopTerm& t) { return fits(t.stride_bytes); });
}

void Level::push(Kernel kernel) {
  // Windows without elements have no meaningful strides.
  if (!has_effect(kernel.op) &&
      std::all_of(kernel.outputs.begin(), kernel.outputs.end(),
                  [](const View& v) { return v.elems() == 0; }))
    return;
  const KernelTarget& target = context_.options.target;
  if (target.scratch_bytes) kernel.scratch_bytes = target.scratch_bytes(kernel);
  MemoryKind kind = MemoryKind::kDevice;
  if (kernel.op == OpKind::kDevicePut && (kind_of(kernel.inputs[0]) == MemoryKind::kDisk ||
                                          kind_of(kernel.outputs[0]) == MemoryKind::kDisk)) {
    kind = MemoryKind::kPinnedHost;
    const View& moved = kernel.outputs[0];
    const int64_t bytes = moved.elems() * dtype_bytes(moved.dtype);
    // A move between disks has no memory but the bounce buffer; other moves may need it for the
    // ends of spans only.
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

}  // namespace stow::lowering
