// Branches, and loops whose number of iterations is not known.
#include "stowage/passes/lower_level.h"

#include <algorithm>

namespace stow::lowering {
namespace {

size_t first_while_carry(const Node& node) {
  const auto& p = node.as<WhileParams>();
  return static_cast<size_t>(p.n_cond_consts + p.n_body_consts);
}

bool is_while_carry(const Node& node, size_t operand) {
  return node.op == OpKind::kWhile && operand >= first_while_carry(node);
}

// Returns the operand that input i of nested graph g takes.
size_t operand_of_input(const Node& node, size_t g, size_t i) {
  if (node.op == OpKind::kCond) return 1 + i;
  const auto& p = node.as<WhileParams>();
  const auto n_consts = static_cast<size_t>(g == 0 ? p.n_cond_consts : p.n_body_consts);
  if (i >= n_consts) return first_while_carry(node) + i - n_consts;
  return g == 0 ? i : static_cast<size_t>(p.n_cond_consts) + i;
}

}  // namespace

std::vector<std::unique_ptr<Level>>& Level::levels_of(int u) const {
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

int Level::sole_operand(const Node& node, ValueId root) const {
  int found = -1;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (made_root(node.operands[i]) != root) continue;
    if (found >= 0 || use(node.operands[i]).canon != root) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

bool Level::cond_can_share(int u, ValueId v, ValueId root) const {
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

bool Level::while_can_share(const Node& node, ValueId v, ValueId root) const {
  const auto carry = first_while_carry(node) + static_cast<size_t>(graph_.value(v).index);
  return sole_operand(node, root) == static_cast<int>(carry);
}

bool Level::may_become(ValueId in, ValueId out) const {
  if (use(out).canon == in) return true;
  const int last = last_use(in);
  if (last == kForever) return false;
  const ValueId root = made_root(out);
  if (!is_whole(out) || graph_.is_input(root) || use(root).unit < 0) return true;
  const int defined = first_write(root);
  return defined > last || (defined == last && can_share(use(root).unit, root, in));
}

bool Level::operand_dies(int u, const Node& node, size_t i,
                         const std::vector<ValueId>& taken) const {
  const ValueId root = made_root(node.operands[i]);
  return context_.options.reuse && reusable_[root.index()] &&
         last_use_with_parts(root) == position(u) &&
         sole_operand(node, root) == static_cast<int>(i) &&
         std::find(taken.begin(), taken.end(), root) == taken.end();
}

void Level::emit_cond(int u) {
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
    for (size_t j = 0; j < outputs.size(); ++j) {
      std::optional<ValueId> before;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (same_window(inputs[i], branch->results[j])) before = level->graph().inputs()[i];
      level->request_output(outputs[j], branch->results[j], before);
    }
    level->plan();
    level->emit(branch->alternatives.emplace_back());
    for (size_t j = 0; j < outputs.size(); ++j)
      level->copy_to(outputs[j], branch->results[j], node.provenance);
  }
  out_->push_back({std::move(branch)});
}

bool Level::is_whole_slot(const View& view) const {
  const Buffer& buffer = context_.schedule.buffers[view.buffer.index()];
  const int64_t bytes = buffer.slots > 1 ? buffer.slot_bytes : buffer.bytes;
  return is_contiguous(view) && buffer.parts.size() == 1 &&
         view.elems() * dtype_bytes(view.dtype) == bytes;
}

bool Level::shares_slot_with_input(const View& view) const {
  return !is_whole_slot(view) &&
         std::any_of(graph_.inputs().begin(), graph_.inputs().end(), [&](ValueId v) {
           const std::optional<View>& input = storage_[v.index()];
           return input && input->buffer == view.buffer && !is_whole_slot(*input);
         });
}

void Level::emit_while(int u) {
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
    if (!is_whole_slot(slot)) {
      slot = new_buffer(node.result(k), node);
      begins = true;
    }
    if (!same_window(init, slot)) emit_copy(init, slot, begins, node.provenance);
    slot.begins_lifetime = false;
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

void Level::emit_while_body(const std::vector<View>& slots, std::vector<Instruction>& out,
                            const Node& node) {
  const size_t first_carry = graph_.inputs().size() - slots.size();
  for (size_t k = 0; k < slots.size(); ++k) {
    const ValueId in = graph_.inputs()[first_carry + k], made = graph_.outputs()[k];
    if (use(made).canon != in && may_become(in, made)) request_output(made, slots[k], in);
  }
  plan();
  emit(out);
  // Carries that become other carries are read before any carry is written.
  std::vector<std::optional<View>> saved(slots.size());
  for (size_t k = 0; k < slots.size(); ++k) {
    const ValueId made = graph_.outputs()[k];
    if (!graph_.is_input(made_root(made)) || same_window(access(made), slots[k])) continue;
    saved[k] = contiguous_view(context_.add_buffer(graph_.type(made).bytes(), node.provenance,
                                                   "carry", 1, graph_.type(made).kind),
                               graph_.type(made));
    emit_copy(access(made), *saved[k], true, node.provenance);
  }
  for (size_t k = 0; k < slots.size(); ++k)
    if (!saved[k]) copy_to(graph_.outputs()[k], slots[k], node.provenance);
  for (size_t k = 0; k < slots.size(); ++k)
    if (saved[k]) emit_copy(*saved[k], slots[k], true, node.provenance);
}

}  // namespace stow::lowering
