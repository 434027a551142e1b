// Walks over all kernels and windows of a schedule; each in a loop or branch is visited once.
// Not a walk of the timeline, iteration by iteration; plan/ does that.
#pragma once

#include <utility>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// The kernel of an instruction, const if the instruction is; null if it is not a kernel.
inline const Kernel* kernel_of(const Instruction& instruction) { return instruction.kernel(); }
inline Kernel* kernel_of(Instruction& instruction) { return instruction.edit_kernel(); }
/// The branch of an instruction, which must be one; const if the instruction is.
inline const Branch& branch_of(const Instruction& instruction) { return *instruction.branch(); }
inline Branch& branch_of(Instruction& instruction) {
  return *std::get<std::shared_ptr<Branch>>(instruction.body);
}

/// Calls visit(kernel) for every kernel of a list, nested ones included. Kernels are const if the
/// list is.
template <typename List, typename Visit>
void for_each_kernel(List&& list, Visit&& visit) {
  for (auto& instruction : list) {
    if (auto* kernel = kernel_of(instruction)) {
      visit(*kernel);
    } else if (auto* loop = instruction.loop()) {
      for_each_kernel(loop->body, visit);
      for_each_kernel(loop->condition, visit);
    } else {
      for (auto& alternative : branch_of(instruction).alternatives)
        for_each_kernel(alternative, visit);
    }
  }
}

/// Calls visit(view, write) for every window of an instruction or of a list of instructions, nested
/// ones included. Windows are const if the instruction or list is.
template <typename Item, typename Visit>
void for_each_view(Item&& item, Visit&& visit) {
  if constexpr (requires { item.begin(); }) {
    for (auto& instruction : item) for_each_view(instruction, visit);
  } else if (auto* kernel = kernel_of(item)) {
    for (auto& view : kernel->inputs) visit(view, false);
    for (auto& view : kernel->outputs) visit(view, true);
  } else if (auto* loop = item.loop()) {
    for_each_view(loop->body, visit);
    for_each_view(loop->condition, visit);
    if (loop->trip_count == Loop::kOpen) visit(loop->predicate, false);
    for (auto& view : loop->carries) visit(view, false);
  } else {
    auto& branch = branch_of(item);
    visit(branch.index, false);
    for (auto& alternative : branch.alternatives) for_each_view(alternative, visit);
    for (auto& view : branch.results) visit(view, true);
  }
}

/// The range [low, high) of bytes of its buffer that a window covers, without its loop terms.
inline std::pair<int64_t, int64_t> reach_of(const View& view) {
  int64_t low = view.offset_bytes, high = view.offset_bytes;
  if (view.elems() == 0) return {low, high};
  high += dtype_bytes(view.dtype);
  for (size_t d = 0; d < view.dims.size(); ++d) {
    const int64_t reach = (view.dims[d] - 1) * view.strides[d] * dtype_bytes(view.dtype);
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

/// True if a kernel exchanges data with other positions of its mesh.
inline bool exchanges_data(const Kernel& kernel) {
  return kernel.kind == KernelKind::kOp && is_collective(kernel.op) &&
         std::get<CollectiveParams>(kernel.params).group_size() > 1;
}

/// The stream that a kernel runs on; `buffers` are those of its schedule.
inline StreamKind stream_of(const Kernel& kernel, const std::vector<Buffer>& buffers) {
  if (exchanges_data(kernel)) return StreamKind::kCollective;
  if (kernel.kind != KernelKind::kOp || kernel.op != OpKind::kDevicePut)
    return StreamKind::kCompute;
  const auto kind = [&](const View& view) { return buffers[view.buffer.index()].kind; };
  return stream_of(kind(kernel.inputs[0]), kind(kernel.outputs[0]));
}

}  // namespace stow
