// Kernels held to an instruction set for a while.
#pragma once

#include <cstdint>

#include <hwy/targets.h>

namespace stow {

/// While one stands, kernels are those of `target`, one of Highway's; then those of before.
class OnTarget {
 public:
  explicit OnTarget(int64_t target) { use(target); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
  ~OnTarget() { use(before_); }

 private:
  static void use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  const int64_t before_ = hwy::SupportedTargets();
};

}  // namespace stow
