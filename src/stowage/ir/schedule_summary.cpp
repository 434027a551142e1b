#include "stowage/ir/schedule_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace stow::ir {
namespace {

using Counts = std::map<OpKind, CollectiveCount>;

void count_kernel(const Kernel& kernel, int64_t times, Counts& counts) {
  if (!is_collective(kernel.op) || kernel.phase == MovePhase::kDone) return;
  const auto size = static_cast<double>(std::get<CollectiveParams>(kernel.params).group_size());
  const auto bytes_of = [](const View& v) { return v.elems() * dtype_bytes(v.dtype); };
  const double share = kernel.op == OpKind::kPermute     ? 1
                       : kernel.op == OpKind::kAllReduce ? 2 * (size - 1) / size
                                                         : (size - 1) / size;
  CollectiveCount& count = counts[kernel.op];
  count.op = kernel.op;
  count.count += times;
  count.bytes +=
      static_cast<double>(times) * share *
      static_cast<double>(std::max(bytes_of(kernel.inputs[0]), bytes_of(kernel.outputs[0])));
}

void count_list(const std::vector<Instruction>& list, int64_t times, Counts& counts) {
  for (const Instruction& instruction : list) {
    if (const Kernel* kernel = instruction.kernel()) {
      count_kernel(*kernel, times, counts);
    } else if (const Loop* loop = instruction.loop()) {
      const int64_t trips = loop->trip_count == Loop::kOpen ? 1 : loop->trip_count;
      count_list(loop->body, times * trips, counts);
      count_list(loop->condition, times * trips, counts);
    } else {
      for (const auto& alternative : instruction.branch()->alternatives)
        count_list(alternative, times, counts);
    }
  }
}

void write_view(const View& view, std::string& text) {
  fmt::format_to(std::back_inserter(text), " {}[{}]/[{}]@{}+{}", dtype_name(view.dtype),
                 fmt::join(view.dims, ","), fmt::join(view.strides, ","), view.buffer.index(),
                 view.offset_bytes);
  for (const LoopTerm& term : view.terms)
    fmt::format_to(std::back_inserter(text), "~{}:{},{},{},{}", term.loop.index(), term.start,
                   term.step, term.modulo, term.stride_bytes);
}

void write_program(const RowProgram& program, std::string& text) {
  fmt::format_to(std::back_inserter(text), " <[{}] {} {}:", fmt::join(program.dims, ","),
                 program.n_row_dims, program.n_group_dims);
  for (const Step& step : program.steps)
    fmt::format_to(std::back_inserter(text), " {}:{}:{}:{}({})#{:x}", static_cast<int>(step.kind),
                   op_name(step.op), dtype_name(step.dtype), step.index, fmt::join(step.args, ","),
                   step.imm);
  text += ">";
}

void write_list(const std::vector<Instruction>& list, std::string& text) {
  for (const Instruction& instruction : list) {
    if (const Kernel* kernel = instruction.kernel()) {
      text += op_name(kernel->op);
      fmt::format_to(std::back_inserter(text), " {} {} {} {}", static_cast<int>(kernel->kind),
                     static_cast<int>(kernel->phase), kernel->transfer, kernel->scratch_bytes);
      if (const auto* constant = std::get_if<ConstantParams>(&kernel->params))
        for (const std::byte byte : constant->data)
          fmt::format_to(std::back_inserter(text), " {:x}", static_cast<unsigned>(byte));
      if (kernel->program) write_program(*kernel->program, text);
      for (const Kernel::Made& made : kernel->made)
        if (made.program) write_program(*made.program, text);
      for (const View& view : kernel->inputs) write_view(view, text);
      text += " ->";
      for (const View& view : kernel->outputs) write_view(view, text);
    } else if (const Loop* loop = instruction.loop()) {
      fmt::format_to(std::back_inserter(text), "loop {} {{\n", loop->trip_count);
      write_list(loop->condition, text);
      text += "}{\n";
      write_list(loop->body, text);
      text += "}";
    } else {
      text += "branch {\n";
      for (const auto& alternative : instruction.branch()->alternatives) {
        write_list(alternative, text);
        text += "}{\n";
      }
      text += "}";
    }
    text += "\n";
  }
}

}  // namespace

std::vector<CollectiveCount> count_collectives(const Schedule& schedule) {
  Counts counts;
  count_list(schedule.instructions, 1, counts);
  std::vector<CollectiveCount> list;
  for (const auto& [op, count] : counts) list.push_back(count);
  return list;
}

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Buffer& buffer : schedule.buffers)
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {} {}\n", buffer.bytes, buffer.slots,
                   buffer.slot_bytes, memory_kind_name(buffer.kind), static_cast<int>(buffer.role),
                   buffer.index);
  write_list(schedule.instructions, text);
  return text;
}

}  // namespace stow::ir
