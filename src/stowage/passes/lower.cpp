// A program's arguments, donations and results; what lies between them is `lower_level.h`'s.
#include "stowage/passes/lower.h"

#include "stowage/passes/first_slots.h"
#include "stowage/passes/lower_level.h"

namespace stow {
namespace lowering {
namespace {

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
    context_.schedule.alignment_bytes = context_.options.target.alignment_bytes;
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

  // Pairs results with donated arguments. An argument that is a result stays where it is. Another
  // result is made in place if its maker is the argument's last reader, or if the argument is dead
  // before the result begins.
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
          const bool in_parts = in_place && level.concat_can_share(root, in);
          const bool fits =
              in_parts ||
              (in_place ? level.last_use(in) == level.position(u) && level.can_share(u, root, in)
                        : level.last_use(in) < level.first_write(root));
          if (!fits) continue;
          level.set_destination(
              root, contiguous_view(context_.schedule.inputs[i].buffer, graph_.type(root)),
              in_parts ? kInPlace : kOwnLife,
              in_parts ? std::nullopt : std::optional(in));
          taken_[i] = true;
          break;
        }
      }
  }

  // Returns a donated argument that is dead and holds no result: the one in which the result was to
  // be made, else any of its type. Invalid if there is none.
  BufferId dead_argument(const Level& level, ValueId out, const std::vector<bool>& claimed) {
    const ValueId root = level.made_root(out);
    if (!context_.options.reuse) return BufferId();
    if (level.has_destination(root)) {
      const BufferId asked_for = level.destination(root).buffer;
      const Buffer& buffer = context_.schedule.buffers[asked_for.index()];
      if (buffer.role == BufferRole::kInput && buffer.bytes == graph_.type(out).bytes() &&
          !claimed[asked_for.index()])
        return asked_for;
    }
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId in = graph_.inputs()[i];
      if (!donated(i) || !(graph_.type(in) == graph_.type(out)) || level.last_use(in) == kForever)
        continue;
      taken_[i] = true;
      return context_.schedule.inputs[i].buffer;
    }
    return BufferId();
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
        const ProvenancePtr provenance = graph_.is_input(v) ? nullptr : graph_.def(v).provenance;
        claimed.resize(buffers.size(), false);
        BufferId buffer = dead_argument(level, v, claimed);
        if (!buffer.valid())
          buffer = context_.add_buffer(type.bytes(), provenance, "output", 1, type.kind);
        const View to = contiguous_view(buffer, type);
        claimed.resize(buffers.size(), false);
        claimed[buffer.index()] = true;
        level.emit_copy(view, to, true, provenance);
        claimed.resize(buffers.size(), false);
        view = to;
      }
      Buffer& b = buffers[view.buffer.index()];
      if (b.role == BufferRole::kTemporary) {
        b.role = BufferRole::kOutput;
        b.index = static_cast<int>(o);
      }
      view.begins_lifetime = false;
      context_.schedule.outputs.push_back(std::move(view));
    }
    int64_t bytes = 0;
    for (const Buffer& b : buffers)
      if (b.role == BufferRole::kOutput) bytes += b.bytes;
    for (Buffer& b : buffers)
      b.outside_arena = b.role == BufferRole::kOutput && bytes <= kMaxOutsideArenaBytes;
  }

  Context context_;
  const Graph& graph_;
  std::vector<bool> taken_, returned_;
};

}  // namespace
}  // namespace lowering

Schedule lower(const Graph& graph, const LowerOptions& options) {
  return lowering::Program(graph, options).run();
}

}  // namespace stow
