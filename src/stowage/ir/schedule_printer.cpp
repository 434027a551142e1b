#include "stowage/ir/schedule_printer.h"

#include <limits>

#include "stowage/ir/field_writer.h"

namespace stow {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

bool is_contiguous(const View& view) {
  int64_t stride = 1;
  for (size_t i = view.dims.size(); i-- > 0; stride *= view.dims[i])
    if (i >= view.strides.size() || view.strides[i] != stride) return false;
  return view.strides.size() == view.dims.size();
}

class SchedulePrinter : public FieldWriter {
 public:
  explicit SchedulePrinter(const ScheduleTextOptions& options = {}) : options_(options) {}

  void schedule(const Schedule& s) {
    put("schedule {{alignment={}, loops={}}} {{", s.alignment_bytes, s.n_loops);
    for (size_t b = 0; b < s.buffers.size(); ++b) {
      start_line(2);
      put("b{}", b);
      buffer(s.buffers[b]);
    }
    for (const auto& [word, list] : {std::pair{"inputs", &s.inputs}, {"outputs", &s.outputs}}) {
      start_line(2);
      out_ += word;
      views(*list, " ");
    }
    for (const std::string& limit : s.limits) {
      start_line(2);
      out_ += "limit ";
      string(limit);
    }
    instructions(s.instructions, 2);
    out_ += "\n}";
  }

  void row_program(const RowProgram& p, int indent) {
    put("rows [{}] {{n_row_dims={}, n_group_dims={}}} {{", fmt::join(p.dims, ","), p.n_row_dims,
        p.n_group_dims);
    // Operands by number, whether or not a step names them.
    for (const auto& [word, list] : {std::pair{"input", &p.inputs}, {"output", &p.outputs}})
      for (size_t i = 0; i < list->size(); ++i) {
        start_line(indent + 2);
        put("{} {} {} by [{}]", word, i, dtype_name((*list)[i].dtype),
            fmt::join((*list)[i].strides, ","));
      }
    for (size_t i = 0; i < p.steps.size(); ++i) {
      start_line(indent + 2);
      step(i, p.steps[i]);
    }
    start_line(indent);
    out_ += '}';
  }

 private:
  void place(const ProvenancePtr& p) {
    if (options_.places) provenance(p);
  }

  // " {name=value, …}" of what is not as by default.
  void begin_fields() { n_fields_ = 0; }
  void name_field(const char* name) { put("{}{}=", n_fields_++ == 0 ? " {" : ", ", name); }
  template <typename T>
  void one_field(const char* name, const T& value, const T& by_default) {
    if (value == by_default) return;
    name_field(name);
    put("{}", value);
  }
  void end_fields() {
    if (n_fields_ > 0) out_ += '}';
  }

  void buffer(const Buffer& b) {
    put(": {} bytes ", b.bytes);
    if (b.kind != MemoryKind::kDevice) put("{} ", memory_kind_name(b.kind));
    if (b.role == BufferRole::kTemporary) out_ += "temporary";
    if (b.role == BufferRole::kInput) out_ += "input";
    if (b.role == BufferRole::kOutput) out_ += "output";
    if (b.index >= 0) put(" {}", b.index);
    const Buffer plain;
    begin_fields();
    one_field("slots", b.slots, plain.slots);
    one_field("slot_bytes", b.slot_bytes, b.bytes);
    if (b.parts != plain.parts) {
      name_field("parts");
      put("[{}]", fmt::join(b.parts, ","));
    }
    one_field("apart", b.independent_slots, false);
    if (b.first_slot.valid()) {
      name_field("first_slot");
      put("b{}", b.first_slot.value);
    }
    if (!b.loop_dims.empty()) {
      name_field("each");
      out_ += '[';
      for (size_t i = 0; i < b.loop_dims.size(); ++i)
        put("{}l{} of {}", i ? ", " : "", b.loop_dims[i].loop.value, b.loop_dims[i].trip_count);
      out_ += ']';
    }
    one_field("separate", b.outside_arena, false);
    end_fields();
    if (!b.label.empty()) {
      out_ += ' ';
      string(b.label);
    }
    place(b.provenance);
    if (b.part_provenance.empty() || !options_.places) return;
    out_ += " parts [";
    for (size_t i = 0; i < b.part_provenance.size(); ++i) {
      if (i) out_ += ',';
      if (!b.part_provenance[i]) out_ += "none";
      provenance(b.part_provenance[i]);
    }
    out_ += ']';
  }

  void view(const View& v) {
    put("{}[{}]", dtype_name(v.dtype), fmt::join(v.dims, ","));
    if (!is_contiguous(v)) put(" by [{}]", fmt::join(v.strides, ","));
    if (v.buffer.valid()) put(" b{}", v.buffer.value);
    if (v.offset_bytes != 0) put(" at {}", v.offset_bytes);
    for (const LoopTerm& term : v.terms) {
      put(" l{}", term.loop.value);
      begin_fields();
      one_field("start", term.start, int64_t{0});
      one_field("step", term.step, int64_t{1});
      one_field("modulo", term.modulo, int64_t{0});
      one_field("stride", term.stride_bytes, int64_t{0});
      end_fields();
    }
    if (v.begins_lifetime) out_ += " begins";
  }
  void views(const std::vector<View>& list, const char* before) {
    for (size_t i = 0; i < list.size(); ++i) {
      out_ += i ? ", " : before;
      view(list[i]);
    }
  }

  void step(size_t number, const Step& s) {
    const auto args = [&](size_t most) {
      out_ += '(';
      for (size_t k = 0; k < most && s.args[k] >= 0; ++k) put("{}%{}", k ? ", " : "", s.args[k]);
      out_ += ')';
    };
    put("%{} = ", number);
    switch (s.kind) {
      case StepKind::kLoad:
        put("load {}", s.index);
        break;
      case StepKind::kConstant: {
        put("constant {} ", dtype_name(s.dtype));
        elements(
            s.dtype,
            std::as_bytes(std::span(&s.imm, 1)).first(static_cast<size_t>(dtype_bytes(s.dtype))));
        break;
      }
      case StepKind::kIota:
        put("iota {}", s.index);
        break;
      case StepKind::kCompute:
        out_ += op_name(s.op);
        args(3);
        break;
      case StepKind::kReduceRow:
        put("rows {}", op_name(s.op));
        args(1);
        break;
      case StepKind::kReduceColumns:
        put("columns {} {}", s.index, op_name(s.op));
        args(1);
        break;
      case StepKind::kStore:
        put("store {}", s.index);
        args(1);
        break;
    }
    if (s.kind != StepKind::kConstant) put(" : {}", dtype_name(s.dtype));
  }

  void kernel(const Kernel& k, int indent) {
    views(k.outputs, "");
    if (!k.outputs.empty()) out_ += " = ";
    out_ += op_name(k.op);
    out_ += '(';
    views(k.inputs, "");
    out_ += ')';
    params(k.params);
    if (k.kind == KernelKind::kOp && k.program) out_ += " behind";
    if (k.program) {
      out_ += ' ';
      row_program(*k.program, indent);
    }
    for (size_t i = 0; i < k.prologues.size(); ++i) {
      if (!k.prologues[i].program) continue;
      put(" before {} (", i);
      view(k.prologues[i].view);
      out_ += ") ";
      row_program(*k.prologues[i].program, indent);
    }
    if (k.scratch.valid() || k.scratch_bytes != 0) {
      put(" scratch {}", k.scratch_bytes);
      if (k.scratch.valid()) put(" b{}", k.scratch.value);
    }
    if (k.phase != MovePhase::kWhole || k.transfer >= 0) {
      put(" {}", phase_name(k.phase));
      if (k.transfer >= 0) put(" {}", k.transfer);
    }
  }

  void instructions(const std::vector<Instruction>& list, int indent) {
    for (const Instruction& i : list) {
      start_line(indent);
      if (const Kernel* k = i.kernel()) {
        kernel(*k, indent);
        guard(i.guard);
        place(k->provenance);
      } else if (const Loop* l = i.loop()) {
        loop(*l, i.guard, indent);
      } else {
        branch(*i.branch(), i.guard, indent);
      }
    }
  }
  void block(const std::vector<Instruction>& list, int indent) {
    out_ += '{';
    instructions(list, indent + 2);
    start_line(indent);
    out_ += '}';
  }

  void loop(const Loop& l, const Guard& g, int indent) {
    const bool open = l.trip_count == Loop::kOpen;
    put("loop l{} ", l.id.value);
    if (open) {
      out_ += "while ";
      view(l.predicate);
      out_ += " after ";
      block(l.condition, indent);
      out_ += " leaves (";
      views(l.carries, "");
      out_ += ") do ";
    } else {
      put("of {} ", l.trip_count);
    }
    block(l.body, indent);
    guard(g);
    place(l.provenance);
  }

  void branch(const Branch& b, const Guard& g, int indent) {
    out_ += "branch ";
    view(b.index);
    out_ += " leaves (";
    views(b.results, "");
    out_ += ") [";
    for (size_t i = 0; i < b.alternatives.size(); ++i) {
      if (i) out_ += ", ";
      block(b.alternatives[i], indent);
    }
    out_ += ']';
    guard(g);
    place(b.provenance);
  }

  void guard(const Guard& g) {
    if (g.begin != 0) put(" from {}", g.begin);
    if (g.end != kNoEnd) put(" to {}", g.end);
  }

  const ScheduleTextOptions options_;
  int n_fields_ = 0;
};

}  // namespace

std::string print(const Schedule& schedule, const ScheduleTextOptions& options) {
  SchedulePrinter printer(options);
  printer.schedule(schedule);
  return printer.take() + "\n";
}

std::string print(const RowProgram& program) {
  SchedulePrinter printer;
  printer.row_program(program, 0);
  return printer.take() + "\n";
}

std::string_view phase_name(MovePhase phase) {
  switch (phase) {
    case MovePhase::kWhole:
      return "whole";
    case MovePhase::kStart:
      return "start";
    case MovePhase::kDone:
      return "done";
  }
  return "?";
}

}  // namespace stow
