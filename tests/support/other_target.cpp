#include "tests/support/other_target.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "stowage/runtime/streams.h"

namespace stow::testing {
namespace {

// Scratch is this much that no kernel may touch, what the CPU's kernel takes, and that much again.
// What is between is aligned as the CPU's kernel asks, and no better.
constexpr int64_t kBefore = 64, kBehind = 192;
constexpr std::byte kNan{0xff};

bool is_move(const Kernel& kernel) {
  return kernel.op == OpKind::kDevicePut;
}

}  // namespace

class OtherTarget::Guarded final : public BoundKernel {
 public:
  Guarded(const OtherTarget& target, const Kernel& kernel)
      : target_(target),
        inner_(target.cpu_->bind(kernel)),
        bytes_(target.cpu_->scratch_bytes(kernel)),
        name_(op_name(kernel.op)) {}

  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch) const override {
    ++target_.n_kernels_;
    if (target_.loses_kernels_) throw std::runtime_error("lost");
    if (std::this_thread::get_id() != bound_by_) ++target_.n_on_other_threads_;
    auto* const begin = static_cast<std::byte*>(scratch);
    if (!begin || reinterpret_cast<uintptr_t>(begin) % 256 != 0)
      throw std::logic_error(fmt::format("{}: expected scratch on 256 bytes, got {}", name_,
                                         begin ? "other scratch" : "none"));
    std::byte* const inner = begin + kBefore;
    std::byte* const behind = inner + bytes_;
    std::memset(begin, static_cast<int>(kNan), static_cast<size_t>(kBefore + bytes_ + kBehind));
    inner_->run(inputs, outputs, bytes_ > 0 ? inner : nullptr);
    const auto is_nan = [](std::byte b) { return b == kNan; };
    if (!std::all_of(begin, inner, is_nan) || !std::all_of(behind, behind + kBehind, is_nan))
      throw std::logic_error(
          fmt::format("{}: it wrote beyond its {} bytes of scratch", name_, bytes_));
  }

 private:
  const OtherTarget& target_;  // programs hold it
  std::unique_ptr<BoundKernel> inner_;
  int64_t bytes_;
  std::string_view name_;
  std::thread::id bound_by_ = std::this_thread::get_id();
};

OtherTarget::OtherTarget(int threads)
    : Target(threads, host_target(threads)->description()), cpu_(host_target(threads)) {}

StreamTiming OtherTarget::stream_timing() const {
  return StreamTiming::kAtWait;
}

int64_t OtherTarget::scratch_bytes(const Kernel& kernel) const {
  return is_move(kernel) ? 0 : kBefore + cpu_->scratch_bytes(kernel) + kBehind;
}

std::unique_ptr<BoundKernel> OtherTarget::bind(const Kernel& kernel) const {
  return std::make_unique<Guarded>(*this, kernel);
}

void OtherTarget::copy(const TensorView& from, const TensorView& to, int threads) const {
  cpu_->copy(from, to, threads);
}

DevicePtr other_device(const Device::Capacities& capacities, TargetPtr target) {
  return std::make_shared<Device>("other", capacities, std::move(target));
}

}  // namespace stow::testing
