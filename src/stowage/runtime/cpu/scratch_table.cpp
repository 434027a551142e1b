#include "stowage/runtime/cpu/scratch_table.h"

#include "stowage/runtime/cpu/bound_kernel.h"

namespace stow::cpu {
namespace {

// Programs that are kept, some megabytes of them; then none of the earlier ones.
constexpr size_t kMostPrograms = 2048;

}  // namespace

size_t ScratchTable::ByContent::operator()(const Program& program) const {
  uint64_t hash = 0;
  const auto mix = [&](uint64_t more) {
    hash = (hash ^ more) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (int64_t d : program->dims) mix(static_cast<uint64_t>(d));
  for (const auto* operands : {&program->inputs, &program->outputs}) {
    mix(operands->size());
    for (const RowOperand& operand : *operands)
      for (int64_t stride : operand.strides) mix(static_cast<uint64_t>(stride));
  }
  for (const Step& step : program->steps) {
    mix(static_cast<uint64_t>(step.op));
    for (int32_t arg : step.args) mix(static_cast<uint32_t>(arg));
    mix(step.imm);
  }
  return hash;
}

int64_t ScratchTable::scratch_bytes(const Kernel& kernel, int threads) {
  if (kernel.kind != KernelKind::kRows || !scratch_follows_from_program(kernel))
    return kernel_scratch_bytes(kernel, threads);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = bytes_.find(kernel.program); known != bytes_.end()) return known->second;
  }
  const int64_t bytes = kernel_scratch_bytes(kernel, threads);
  const std::lock_guard lock(mutex_);
  if (bytes_.size() >= kMostPrograms) bytes_.clear();
  bytes_.emplace(kernel.program, bytes);
  return bytes;
}

}  // namespace stow::cpu
