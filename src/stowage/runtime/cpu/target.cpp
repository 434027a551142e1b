#include "stowage/base/inside.h"
#include "stowage/runtime/target.h"

#include <omp.h>

#include "stowage/runtime/cpu/bound_kernel.h"
#include "stowage/runtime/cpu/bound_loop.h"
#include "stowage/runtime/cpu/kernels/instruction_set.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/rates.h"
#include "stowage/runtime/cpu/scratch_table.h"
#include "stowage/runtime/null/built_in_devices.h"

namespace stow {
namespace {

class CpuTarget final : public Target {
 public:
  using Target::Target;
  std::string_view name() const override { return "cpu"; }
  int64_t scratch_bytes(const Kernel& kernel) const override {
    return scratch_.scratch_bytes(kernel, threads());
  }
  std::unique_ptr<BoundKernel> bind(const Kernel& kernel) const override {
    return std::make_unique<cpu::BoundKernel>(kernel, threads());
  }
  std::unique_ptr<BoundLoop> bind_loop(const LoopSteps& steps) const override {
    return cpu::BoundLoop::make(steps);
  }
  void copy(const TensorView& from, const TensorView& to, int threads) const override {
    cpu::copy(from, to, threads);
  }
  std::string instruction_set() const override { return cpu::instruction_set_limit(); }
  double product_rate(DType dtype) const override {
    return cpu::measured_product_rate(dtype, threads());
  }
  double triad_rate() const override { return cpu::measured_triad_rate(threads()); }

 private:
  mutable cpu::ScratchTable scratch_;
};

}  // namespace

TargetPtr host_target(int threads, DeviceDescriptionPtr description) {
  cpu::limit_instruction_set_once();
  return std::make_shared<const CpuTarget>(threads > 0 ? threads : omp_get_max_threads(),
                                           description ? std::move(description) : common_cpu());
}

std::string host_instruction_set() {
  const std::string limit = cpu::instruction_set_limit();
  return cpu::instruction_set_in_use() +
         (limit.empty() ? "" : fmt::format(" (STOW_ISA={})", limit));
}

Result<void> check_instruction_set() {
  return cpu::limit_instruction_set();
}

}  // namespace stow
